"""Bounds given on the command line, in a file, or by data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.domain import Domain
from ennopt.domain.reading import read_domain
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
        help="bounds by name: .toml (name = [low, high], or name = number to fix it) "
        "or .csv (name,lower,upper)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE.csv",
        help="rows of data: their ranges bound the inputs that have no other bounds",
    )


def given_domain(options: argparse.Namespace, ensemble: Ensemble) -> Domain | None:
    """The domain that the options give or the model records; ``None`` without one."""
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
    if spec is None and options.data is None and ensemble.lower is None:
        return None
    return read_domain(spec, ensemble, options.data)
