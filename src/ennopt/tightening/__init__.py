"""Slower, tighter bounds of neurons: linear programs, MILPs, and chains of them."""
