"""The record of a proof, and its checker.

`core` is what a verdict rests on. `checker` repeats a proof with it, with choices from
`advice`; `record` is what a certificate says and how it is stored, and `words` tells it
to people. These five import NumPy and plain values (`ennopt.network`, `ennopt.domain`,
`ennopt.problem`, risks), and nothing of the searches. `writer` listens to a search,
`sign_writer` makes a certificate of a search on neurons, and `splits` is the tree that
both hear of.
"""
