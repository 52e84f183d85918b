"""Bounds and constraints given on the command line, in a file, or by data."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ennopt.columns import Number
from ennopt.domain.reading import read_place
from ennopt.domain.where import Place, Where
from ennopt.network import Ensemble
from ennopt.options import number

Said = TypeVar("Said")


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Declare the options that give bounds."""
    parser.add_argument(
        "--lower",
        type=float,
        nargs="+",
        metavar="L",
        help="lower bounds in the order of the inputs, or one for all",
    )
    parser.add_argument(
        "--upper",
        type=float,
        nargs="+",
        metavar="U",
        help="upper bounds in the order of the inputs, or one for all",
    )
    parser.add_argument(
        "--bounds",
        type=Path,
        metavar="FILE",
        help="bounds by name: .toml (name = [low, high], or name = number to fix it; "
        "constraints = [TEXT, ...]) or .csv (name,lower,upper)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE.csv",
        help="rows of data: their ranges bound the inputs that have no other bounds",
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the column of --data with what was measured: predictions are compared "
        "with its range",
    )
    parser.add_argument(
        "--fix",
        type=_name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="give an input this value, whatever its bounds are; may be repeated",
    )
    parser.set_defaults(constraint=[], integer=[], values=[], category=[], trust=[])


def add_statements(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say more about the inputs than bounds do."""
    parser.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="TEXT",
        help='a linear constraint such as "2*cement <= 900 + slag"; may be repeated',
    )
    parser.add_argument(
        "--integer",
        action="append",
        default=[],
        metavar="NAME",
        help="an input that takes whole numbers only; may be repeated",
    )
    parser.add_argument(
        "--values",
        type=_name_and_values,
        action="append",
        default=[],
        metavar="NAME=A,B,...",
        help="an input that takes these values only; may be repeated",
    )
    parser.add_argument(
        "--category",
        type=_name_and_list,
        action="append",
        default=[],
        metavar="NAME=INPUT,INPUT,...",
        help="inputs of zeros and ones of which exactly one is a one; may be repeated",
    )
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="REGION",
        help="stay where the rows of --data are: near (close to a row), "
        "near:radius=0.3,count=3 (within 0.3 standard deviations of 3 rows), box (in "
        "their range), hull, mahalanobis or mahalanobis:radius=2; may be repeated",
    )


def _name_and_value(text: str) -> tuple[str, str]:
    name, sign, value = text.rpartition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"Expected NAME=VALUE, got {text!r}")
    return name.strip(), value.strip()


def _values(
    fixed: dict[str, str], categories: Iterable[str], ensemble: Ensemble
) -> dict[str, float | str]:
    """Numbers and, for categories, names of levels."""
    columns = ensemble.columns or ()
    levels = {c.name for c in columns if not isinstance(c, Number)}.union(categories)
    found: dict[str, float | str] = {}
    for name, text in fixed.items():
        try:
            found[name] = text if name in levels else number(text)
        except argparse.ArgumentTypeError as error:
            if name in ensemble.input_names:
                raise ValueError(f"{error} at --fix {name}.") from None
            found[name] = text  # a category that a file names, or a mistake
    return found


def _name_and_list(text: str) -> tuple[str, list[str]]:
    name, sign, entries = text.rpartition("=")
    if not (sign and entries.strip()):
        raise argparse.ArgumentTypeError(f"Expected NAME=A,B,..., got {text!r}")
    return name.strip(), [entry.strip() for entry in entries.split(",")]


def _name_and_values(text: str) -> tuple[str, list[float]]:
    name, entries = _name_and_list(text)
    return name, [number(entry) for entry in entries]


def given_place(options: argparse.Namespace, ensemble: Ensemble) -> Place | None:
    """The set that the options give or the model records; ``None`` without one."""
    lower, upper = options.lower, options.upper
    spec: Any = options.bounds
    if lower is not None or upper is not None:
        if spec is not None:
            raise ValueError(
                "Expected --bounds or --lower/--upper, got both. Leave one out."
            )
        if lower is None or upper is None:
            missing = "--lower" if lower is None else "--upper"
            raise ValueError(f"Expected --lower and --upper, got no {missing}. Add it.")
        spec = tuple(
            np.asarray(side[0] if len(side) == 1 else side) for side in (lower, upper)
        )
    categories = _once(options.category, "--category")
    said = {
        "domain": spec,
        "data": options.data,
        "target": options.target,
        "constraints": options.constraint,
        "fixed": _values(_once(options.fix, "--fix"), categories, ensemble),
        "integers": options.integer,
        "values": _once(options.values, "--values"),
        "categories": categories,
        "trust": options.trust,
    }
    said = {part: given for part, given in said.items() if given}
    if ensemble.lower is None and not said:
        return None
    return read_place(Where(**said), ensemble)


def _once(pairs: list[tuple[str, Said]], option: str) -> dict[str, Said]:
    """What is said of each name, unless two different things are."""
    found: dict[str, Said] = {}
    for name, said in pairs:
        if found.setdefault(name, said) != said:
            raise ValueError(
                f"Expected {option} once for each name, got it twice for {name}. Leave "
                "one out."
            )
    return found
