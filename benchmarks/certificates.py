"""How large certificates are, and how long the checker takes beside the search.

    python benchmarks/certificates.py FOLDER --out benchmarks/certificates.md

Solves ensembles (.npz files) with one thread and checks their certificates with one
process; prints a table of processor times, or writes it to a file. The search is timed
without a certificate.
"""

import argparse
import tempfile
import time
from pathlib import Path

import ennopt
from ennopt.certificate.checker import check
from ennopt.certificate.record import Certificate
from ennopt.run import matrix_threads


def least(run):
    """What a function returns, and its least processor time of some runs."""
    times = []
    while len(times) < 5 and sum(times) < 1.0:
        start = time.process_time()
        found = run()
        times.append(time.process_time() - start)
    return found, min(times)


def measured(path, file):
    """A row of the table for one ensemble."""
    model = ennopt.load(path)
    answer, search = least(lambda: ennopt.maximize(model, method="box", threads=1))
    ennopt.maximize(model, method="box", threads=1, certificate=file)
    claim = Certificate.read(file, model)
    leaves = claim.tree.leaves
    with matrix_threads(1):
        verdict, taken = least(lambda: check(claim))
    size = file.stat().st_size
    cells = (
        path.stem, f"{answer.nodes:,}", f"{leaves:,}", f"{size:,}",
        f"{size / leaves:.2f}", f"{verdict.pieces:,}", f"{search:.2f}",
        f"{taken:.2f}", f"{taken / search:.1f}", "yes" if verdict else "no",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


HEAD = """# What certificates cost

`make bench-certificates` writes this file. Ensembles of the paper's sizes, searched by
`method="box"` on one core (gap 1e-4) and checked on one core; seconds are those of the
processor, the least of up to five runs within a second, and the search is timed without
a certificate. A *leaf* is a part of the box
that the search has closed, a *piece* one that the checker has bounded; the ratio is
that of the checker's time to the search's.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"])
    parser.add_argument("--note", default="", help="a sentence about the machine")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        "| instance | nodes | leaves | bytes | bytes per leaf | pieces | search, s "
        "| check, s | ratio | verified |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    paths = [p for only in options.only for p in options.folder.glob(f"{only}.npz")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proof.cert"
        measured(paths[0], file)  # the first search of a process pays for imports
        for path in sorted(paths, key=lambda path: path.stem.split("_")[1:]):
            lines.append(measured(path, file))
            print(lines[-1], flush=True)
    if options.out is not None:
        note = [options.note, ""] if options.note else []
        text = "\n".join([HEAD, *note, *lines, ""])
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
