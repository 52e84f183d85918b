"""``ennopt solve``: optimize a model from the command line."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from ennopt.checkpoint import INTERVAL, Checkpoint
from ennopt.cli.question import add_question, add_running, question_asked
from ennopt.log import ProgressLog
from ennopt.options import check_place, positive_number
from ennopt.question import heading
from ennopt.result import Result, Status

EXIT_NO_ANSWER = 1
EXIT_INTERRUPTED = 130


def add_solve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "solve",
        help="find the best input of a model and prove it",
        description="Find the input that maximizes or minimizes a model's prediction, "
        "with a proof. The log goes to standard error, the answer to standard output.",
    )
    add_question(parser)
    add_running(parser)
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="also write the answer as one page for a browser",
    )
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="write the log, in lines, and the answer to a file",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="stop as soon as it is known whether a prediction can reach T",
    )
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="write what is needed to repeat the proof: see ennopt verify",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save the state of the search there, now and then; if the file is there, "
        "go on from it",
    )
    parser.add_argument(
        "--checkpoint-interval",
        type=positive_number,
        default=INTERVAL,
        metavar="SECONDS",
        help=f"time between two states that are saved (default: {INTERVAL:g})",
    )
    parser.set_defaults(run=run_solve)


def asked_here(result: Result, given: Sequence[str]) -> Result:
    """The result with the line that asked for it."""
    if result.asked is None:
        return result
    line = shlex.join(["ennopt", *given])
    return replace(result, asked=replace(result.asked, command=line))


@contextmanager
def termination_like_ctrl_c() -> Iterator[None]:
    """Within it, SIGTERM ends a run as Ctrl-C does: best answer, true bound."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may listen to signals
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, return the exit status."""
    words: dict[str, Any] = {}
    if options.checkpoint is not None:
        words["checkpoint"] = Checkpoint(
            options.checkpoint, options.checkpoint_interval
        )
    question = question_asked(options, single=True, **words)
    posed, running = question.posed(), question.running
    for option in ("output", "report", "log_file"):
        path = getattr(options, option)
        if path is not None:
            check_place(path, f"--{option.replace('_', '-')}")
            path.touch()  # may we write there? Not after an hour of work
    with ExitStack() as opened:
        opened.enter_context(termination_like_ctrl_c())
        log = None
        if options.log_file is not None:
            file = opened.enter_context(options.log_file.open("w", encoding="utf-8"))
            told = heading(posed.problem, running.method)
            log = ProgressLog(told, file, live=False)
        tools = replace(running.tools, callback=log)
        result = posed.solve(replace(running, tools=tools, verbose=not options.quiet))
        if log is not None:
            file.write(result.summary() + "\n")
    if options.output is not None:
        options.output.write_text(result.to_json(indent=2) + "\n", encoding="utf-8")
    if options.report is not None:
        asked_here(result, options.given).report(options.report)
    print(result.to_json() if options.json else result.summary())
    if options.report is not None:
        stream = sys.stderr if options.json else sys.stdout
        print(f"The report is in {options.report}", file=stream)
    if result.status is Status.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_NO_ANSWER if result.x is None else 0
