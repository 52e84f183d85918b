"""Options of the command line: a slip gives one line that names the option."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


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
        where, _, told = message.removeprefix("argument ").partition(": ")
        if told.startswith("Expected "):
            message = f"{told} at {where}"
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
        at_least = f" >= {low:g}" if math.isfinite(low) else ""
        try:
            found = int(text)
        except ValueError:
            found = None
        if found is None or found < low:
            raise argparse.ArgumentTypeError(
                f"Expected a whole number{at_least}, got {text.strip()!r}"
            )
        return found

    return read


def check_output(path: Path, option: str) -> None:
    """Refuse a file that cannot be written: now, not after an hour of work."""
    if path.is_dir():
        raise ValueError(f"Expected a file, got the folder {path} at {option}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"Expected a folder that exists, got {path.parent} at {option}. Make it "
            "first."
        )
    path.touch()
