"""The record of a proof, and its checker.

`record` is what a certificate says and how it is stored, `writer` listens to a search,
and `checker` repeats the proof with bounds of its own (`pieces`, `relaxation`). The
last four import NumPy and the values of `ennopt.network` and `ennopt.domain`, and
nothing of the searches.
"""
