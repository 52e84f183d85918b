"""An answer one can see: the report of a solve, its notebook form, its plots."""
