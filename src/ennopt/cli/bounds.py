"""Read bounds given on the command line or in a file."""

from __future__ import annotations

import argparse
import csv
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.domain import Domain
from ennopt.network import Ensemble


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Declare the options that give bounds."""
    parser.add_argument(
        "--lower",
        type=float,
        nargs="+",
        metavar="L",
        help="lower bounds in the order of the inputs, or one for all",
    )
    parser.add_argument("--upper", type=float, nargs="+", metavar="U")
    parser.add_argument(
        "--bounds",
        type=Path,
        metavar="FILE",
        help="bounds by name: .toml (name = [low, high]) or .csv (name,lower,upper)",
    )


def read_domain(options: argparse.Namespace, ensemble: Ensemble) -> Domain | None:
    """The domain that the options give or the model records; ``None`` without one."""
    lower, upper = options.lower, options.upper
    if options.bounds is not None:
        if lower is not None or upper is not None:
            raise ValueError(
                "Expected --bounds or --lower/--upper, got both. Leave one out."
            )
        return Domain.of(read_bounds(options.bounds), ensemble)
    if lower is None and upper is None:
        return None if ensemble.lower is None else Domain.of(None, ensemble)
    if lower is None or upper is None:
        missing = "--lower" if lower is None else "--upper"
        raise ValueError(f"Expected --lower and --upper, got no {missing}. Add it.")
    d = ensemble.num_inputs
    sides = (
        np.full(d, side[0]) if len(side) == 1 else np.asarray(side, float)
        for side in (lower, upper)
    )
    return Domain.of(tuple(sides), ensemble)


def read_bounds(path: Path) -> dict[str, tuple[float, float]]:
    """Bounds by input name from a TOML or CSV file.

    TOML: ``name = [low, high]`` at the top or in a table ``[bounds]``.
    CSV: a header ``name,lower,upper`` and one row for each input.
    """
    if path.suffix == ".toml":
        pairs = _read_toml(path)
    elif path.suffix == ".csv":
        pairs = _read_csv(path)
    else:
        raise ValueError(
            f"Expected a bounds file ending in .toml or .csv, got {path.name}."
        )
    bounds = {}
    for name, (low, high) in pairs.items():
        try:
            bounds[name] = (float(low), float(high))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Expected two numbers, got {low!r} and {high!r} at input {name} of "
                f"{path.name}."
            ) from error
    return bounds


def _read_toml(path: Path) -> dict[str, tuple[Any, Any]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"Expected valid TOML, got {error} in {path.name}.") from error
    if isinstance(table.get("bounds"), dict):
        table = table["bounds"]
    for name, pair in table.items():
        if not (isinstance(pair, list) and len(pair) == 2):
            raise ValueError(
                f"Expected {name} = [low, high], got {pair!r:.60} in {path.name}."
            )
    return {name: (pair[0], pair[1]) for name, pair in table.items()}


def _read_csv(path: Path) -> dict[str, tuple[Any, Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True)
            rows = list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"Expected a CSV file, got {error} in {path.name}.") from error
    header = list(reader.fieldnames or ())
    if not rows or not {"name", "lower", "upper"} <= set(header):
        found = ", ".join(header) if rows else "no rows"
        raise ValueError(
            f"Expected a header name,lower,upper and a row for each input, got "
            f"{found} in {path.name}."
        )
    pairs: dict[str, tuple[Any, Any]] = {}
    for row in rows:
        name = (row["name"] or "").strip()
        if name in pairs:
            raise ValueError(
                f"Expected one row for each input, got two for {name} in {path.name}."
            )
        pairs[name] = (row["lower"], row["upper"])
    return pairs
