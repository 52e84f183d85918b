"""Entry point: parse, dispatch, and turn bad input into one line."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence

from ennopt.cli.explore import add_explore
from ennopt.cli.models import add_convert, add_inspect, add_methods
from ennopt.cli.several import add_alternatives, add_pareto, add_sensitivity
from ennopt.cli.solve import EXIT_INTERRUPTED, add_solve
from ennopt.cli.trust import add_check, add_verify
from ennopt.convert import PredictorNotSupportedError
from ennopt.extras import MissingExtraError
from ennopt.learn.cli import add_instances_parser, add_train_parser
from ennopt.network import shown
from ennopt.options import Parser
from ennopt.study.cli import add_study
from ennopt.version import VERSION

EXIT_BAD_INPUT = 2
COMPARISON = re.compile("[<>]|==")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser: argparse.ArgumentParser = Parser(
        prog="ennopt",
        description="Proved optimization over ensembles of ReLU neural networks.",
    )
    parser.add_argument("--version", action="version", version=f"ennopt {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_solve(commands)
    add_pareto(commands)
    add_alternatives(commands)
    add_sensitivity(commands)
    add_explore(commands)
    add_verify(commands)
    add_check(commands)
    add_inspect(commands)
    add_convert(commands)
    add_methods(commands)
    add_train_parser(commands)
    add_instances_parser(commands)
    add_study(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Status 2 is bad input, told in one line; set ``ENNOPT_TRACEBACK`` to see where
    it was found.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name it has no letters for
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = build_parser().parse_args([_number_or_word(a) for a in given])
        options.given = given
        return int(options.run(options))
    except KeyboardInterrupt:
        print("ennopt: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except MemoryError as error:
        if os.environ.get("ENNOPT_TRACEBACK"):
            raise
        message = str(error)
        if not message.startswith("Expected"):
            message = (
                f"Expected enough memory, got less ({message or 'it ran out'}). Close "
                "other programs, take a smaller model or fewer members, or a computer "
                "with more memory."
            )
        print(f"ennopt: error: {message}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except (ValueError, OSError, MissingExtraError, PredictorNotSupportedError) as bad:
        if os.environ.get("ENNOPT_TRACEBACK"):
            raise
        if isinstance(bad, BrokenPipeError):  # the reader of our output went away
            return 1
        message = " ".join(_told(bad).split())
        print(f"ennopt: error: {message}", file=sys.stderr)
        return EXIT_BAD_INPUT


def _told(error: Exception) -> str:
    """The message of an error; what the system says about a file as a sentence."""
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"Expected a file or folder that can be used, got {error.filename} "
            f"({error.strerror})."
        )
    return shown(str(error))


def _number_or_word(argument: str) -> str:
    """Keep argparse from reading ``-1e-3`` or ``-a <= 3`` as an option."""
    try:
        float(argument)
    except ValueError:
        if argument.startswith("--") or not COMPARISON.search(argument):
            return argument
    return f" {argument}" if argument.startswith("-") else argument
