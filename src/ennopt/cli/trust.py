"""``ennopt verify``: repeat the proof of a certificate."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ennopt.api import verify
from ennopt.options import whole_number
from ennopt.run import available_cores

if TYPE_CHECKING:
    from ennopt.certificate.checker import Checked

EXIT_NOT_VERIFIED = 1


def add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt verify``."""
    parser = commands.add_parser(
        "verify",
        help="repeat the proof of a certificate",
        description="Repeat the proof that ennopt solve --certificate recorded, with "
        "a checker that shares no bounds with the search. Exit status 0: proved; 1: "
        "not proved; 2: the file is damaged or cannot be read.",
    )
    parser.add_argument("certificate", type=Path, metavar="CERTIFICATE")
    parser.add_argument("model", metavar="MODEL", help="the model that it is about")
    parser.add_argument(
        "--processes", type=whole_number(1), metavar="N", help="default: every core"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    """Check a certificate, say what was found, return the exit status."""
    count = options.processes or available_cores()

    def show(moment: Checked) -> None:
        told = f"{moment.pieces:,} pieces bounded, {moment.waiting:,} waiting"
        print(f"\r{told:<60}", end="", file=sys.stderr, flush=True)

    with _processes(count) as executor:
        verdict = verify(
            options.certificate,
            options.model,
            executor=executor,
            workers=count,
            progress=None if options.quiet else show,
        )
    if not options.quiet:
        print(file=sys.stderr)
    word = "Verified" if verdict else "Not verified"
    print(f"{word}: {verdict.reason}")
    print(f"  {verdict.pieces:,} pieces bounded, for {verdict.leaves:,} leaves")
    return 0 if verdict else EXIT_NOT_VERIFIED


@contextlib.contextmanager
def _processes(count: int) -> Iterator[Executor | None]:
    if count == 1:
        yield None
        return
    with ProcessPoolExecutor(count) as pool:
        yield pool
