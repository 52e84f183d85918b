"""Proved optimization over ensembles of ReLU networks."""
