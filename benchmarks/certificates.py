"""How large certificates are, and how long the checker takes beside the search.

    python benchmarks/certificates.py FOLDER [--only PATTERN ...]

Solves ensembles (.npz files) with one thread and checks their certificates with one
process; prints a table of processor times. The search is timed without a certificate.
"""

import argparse
import tempfile
import time
from pathlib import Path

import ennopt
from ennopt.certificate.checker import check
from ennopt.certificate.record import Certificate
from ennopt.run import matrix_threads


def measured(path, file):
    """A row of the table for one ensemble."""
    model = ennopt.load(path)
    start = time.process_time()
    answer = ennopt.maximize(model, method="box", threads=1)
    search = time.process_time() - start
    ennopt.maximize(model, method="box", threads=1, certificate=file)
    claim = Certificate.read(file, model)
    leaves = claim.tree.leaves
    start = time.process_time()
    with matrix_threads(1):
        verdict = check(claim)
    taken = time.process_time() - start
    size = file.stat().st_size
    cells = (
        path.stem, f"{answer.nodes:,}", f"{leaves:,}", f"{size:,}",
        f"{size / leaves:.2f}", f"{verdict.pieces:,}", f"{search:.2f}",
        f"{taken:.2f}", f"{taken / search:.1f}", "yes" if verdict else "no",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"])
    options = parser.parse_args()
    print("| ensemble | nodes | leaves | bytes | bytes per leaf | pieces | search, s "
          "| check, s | ratio | verified |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for pattern in options.only:
            for path in sorted(options.folder.glob(f"{pattern}.npz")):
                print(measured(path, Path(folder) / "proof.cert"), flush=True)


if __name__ == "__main__":
    main()
