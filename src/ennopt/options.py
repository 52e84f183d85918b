"""Options of the command line: a slip gives one line that names the option.

The commands of several rooms are read with these, so they stand above them all.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

SENTENCES = (
    (r"argument (.*?): (Expected .*?)\.?", r"\2 at \1"),
    (
        r"argument --objectives: expected 2 arguments",
        "Expected two objectives at --objectives, got fewer. Write two texts, such as "
        '"2*x0 + x1" and prediction; for one objective run ennopt solve',
    ),
    (r"argument (.*?): expected (.*)", r"Expected \2, got none at \1"),
    (
        r"argument (.*?): invalid choice: (.*) \(choose from (.*)\)",
        r"Expected one of \3, got \2 at \1",
    ),
    (r"the following arguments are required: (.*)", r"Expected \1, got none"),
    (r"unrecognized arguments: (.*)", r"Expected options that are known, got \1"),
    (r"one of the arguments (.*) is required", r"Expected one of \1, got none"),
    (
        r"argument (.*?): not allowed with argument (.*)",
        r"Expected one of \1 and \2, got both",
    ),
)
"""What argparse says, and how we say it."""


class UsageError(ValueError):
    """The command line cannot be understood."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting, and whose errors are sentences."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.register("type", int, whole_number())
        self.register("type", float, number)

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong, and where to read what is right."""
        for pattern, sentence in SENTENCES:
            if found := re.fullmatch(pattern, message):
                message = found.expand(sentence)
                break
        raise UsageError(f"{message.rstrip('.')}. Run: {self.prog} --help")


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"Expected a number, got {text.strip()!r}"
        ) from None


def positive_number(text: str) -> float:
    """Read a number above zero; ``inf`` is one."""
    found = number(text)
    if not found > 0:
        raise argparse.ArgumentTypeError(
            f"Expected a positive number, got {text.strip()}"
        )
    return found


def gap(text: str) -> float:
    """Read a gap: zero or more, finite."""
    found = number(text)
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(
            f"Expected a finite number >= 0, got {text.strip()}"
        )
    return found


def whole_number(low: float = -math.inf) -> Callable[[str], int]:
    """A reader of whole numbers that are at least `low`."""

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"Expected a whole number, got {text.strip()!r}"
            ) from None
        if found < low:
            raise argparse.ArgumentTypeError(
                f"Expected a whole number >= {low:g}, got {found}"
            )
        return found

    return read


def check_place(path: Path, option: str) -> None:
    """Refuse a file to be written that is a folder, or is in a folder that is none."""
    if path.is_dir():
        raise ValueError(f"Expected a file, got the folder {path} at {option}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"Expected a folder that exists, got {path.parent} at {option}. Make it "
            "first."
        )
