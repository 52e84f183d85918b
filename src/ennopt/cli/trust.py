"""``ennopt verify`` repeats a proof, ``ennopt check`` decides a property."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ennopt.api import verify
from ennopt.certificate.record import OtherClaimError
from ennopt.options import positive_number, whole_number
from ennopt.problem_file import read_problem
from ennopt.properties import HOLDS, UNKNOWN, VIOLATED, check_property
from ennopt.run import available_cores, matrix_threads

if TYPE_CHECKING:
    from ennopt.certificate.checker import Checked

EXIT_NOT_VERIFIED = 1
EXITS = {HOLDS: 0, VIOLATED: 10, UNKNOWN: 1}
"""Exit status of ``ennopt check`` for each verdict; 2 is bad input, as everywhere."""

VNNCOMP = {HOLDS: "unsat", VIOLATED: "sat", UNKNOWN: "unknown"}
"""Words of the field's competition: whether a counterexample is satisfiable."""


def add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt verify``."""
    parser = commands.add_parser(
        "verify",
        help="repeat the proof of a certificate",
        description="Repeat the proof that ennopt solve --certificate recorded, with "
        "a checker that shares no bounds with the search. It says what is claimed: "
        "objective, limits, feasible set. Name your problem file to know that the "
        "claim is about your problem. Exit status 0: proved; 1: not proved, or "
        "about another problem; 2: the file is damaged or cannot be read.",
    )
    parser.add_argument("certificate", type=Path, metavar="CERTIFICATE")
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="the model that it is about; or a problem file ending in .toml: then the "
        "certificate must be about this very problem",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the files that a problem file names may be (default: its folder)",
    )
    parser.add_argument(
        "--other",
        action="append",
        default=[],
        metavar="MODEL",
        help="a further model, if the claim is about several; may be repeated",
    )
    parser.add_argument(
        "--processes", type=whole_number(1), metavar="N", help="default: every core"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    """Check a certificate, say what was found, return the exit status."""
    count = options.processes or available_cores()

    def show(moment: Checked) -> None:
        told = f"{moment.pieces:,} parts of the set checked, {moment.waiting:,} wait"
        print(f"\r{told:<60}", end="", file=sys.stderr, flush=True)

    progress, file = None if options.quiet else show, Path(options.model)
    try:
        with _processes(count) as executor:
            if file.suffix.lower() == ".toml":
                decision = read_problem(file, folder=options.folder)
                if options.other:
                    raise ValueError(
                        f"Expected all models in {file.name}, got --other beside it. "
                        "Leave it out."
                    )
                verdict = decision.verify(
                    options.certificate, executor=executor, workers=count,
                    progress=progress,
                )  # fmt: skip
            else:
                verdict = verify(
                    options.certificate, options.model, others=options.other,
                    executor=executor, workers=count, progress=progress,
                )  # fmt: skip
    except OtherClaimError as error:
        print(f"Not verified: {error}")
        return EXIT_NOT_VERIFIED
    if not options.quiet:
        print(file=sys.stderr)
    word = "Verified" if verdict else "Not verified"
    print(f"{word}: {verdict.reason}")
    for line in verdict.claim:
        print(f"  {line}")
    print(
        f"  the certificate divides the set into {verdict.leaves:,} "
        f"part{'s' * (verdict.leaves != 1)}; the check took {verdict.pieces:,}"
    )
    return 0 if verdict else EXIT_NOT_VERIFIED


@contextlib.contextmanager
def _processes(count: int) -> Iterator[Executor | None]:
    if count == 1:
        yield None
        return
    # The processes are made when there is work: by then NumPy is held back here, too.
    with matrix_threads(1), ProcessPoolExecutor(count) as pool:
        yield pool


def add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt check``."""
    parser = commands.add_parser(
        "check",
        help="decide a property that a VNN-LIB file states",
        description="Decide whether a model has a property. Exit status 0: it holds, "
        "proved; 10: it is violated, and the input is printed; 1: unknown at the "
        "limit; 2: bad input.",
    )
    parser.add_argument("model", metavar="MODEL", help="usually an .onnx file")
    parser.add_argument("property", type=Path, metavar="PROPERTY.vnnlib")
    parser.add_argument(
        "--time-limit",
        type=positive_number,
        metavar="SECONDS",
        help="wall-clock time (default: no limit)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "vnncomp"),
        default="text",
        help="vnncomp prints unsat, sat or unknown, and a counterexample as that "
        "field's tools do",
    )
    parser.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Decide a property, print the verdict, return the exit status."""
    found = check_property(options.model, options.property, options.time_limit)
    if options.format == "vnncomp":
        print(VNNCOMP[found.verdict])
        if found.x is not None and found.y is not None:
            pairs = [(f"X_{k}", v) for k, v in enumerate(found.x.tolist())]
            pairs += [(f"Y_{k}", v) for k, v in enumerate(found.y.tolist())]
            print("(" + "\n".join(f"({name} {v!r})" for name, v in pairs) + ")")
        return EXITS[found.verdict]
    print(found.verdict + (f": {found.reason}" if found.reason else ""))
    if found.x is not None and found.y is not None:
        print(f"  inputs  {' '.join(map(repr, found.x.tolist()))}")
        print(f"  outputs {' '.join(map(repr, found.y.tolist()))}")
        print(f"  computed by {found.replayed}")
    return EXITS[found.verdict]
