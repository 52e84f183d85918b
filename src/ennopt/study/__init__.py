"""Studies: many runs from one file, recorded as they end, told as tables and figures.

`ennopt study run` turns a TOML file into runs, `ennopt study report` turns the runs
into the tables and figures of the paper, its own figures beside ours.
"""
