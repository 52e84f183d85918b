"""The configurations that the paper selected (its appendix B), as data."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Literal

from ennopt.learn.training import Configuration

Kind = Literal["single", "ensemble"]


@cache
def _stored() -> dict[str, dict[str, list[dict[str, Any]]]]:
    text = resources.files(__package__).joinpath("hyperparameters.toml").read_text()
    return tomllib.loads(text)


def paper_configurations(
    problem: str, sampling: str = "lhs", kind: Kind | None = None
) -> tuple[Configuration, ...]:
    """The configurations of the paper for a function, in the order of its table.

    Parameters
    ----------
    problem
        ``peaks``, ``beale``, ``perm`` or ``spring``.
    sampling
        ``lhs`` or ``mvn``: how the training rows were drawn.
    kind
        ``single`` for the four single networks, ``ensemble`` for the four ensembles,
        ``None`` for all eight.

    Examples
    --------
    >>> best = paper_configurations("peaks", "lhs", "ensemble")[0]
    >>> best.members, best.layers, best.width, best.learning_rate, best.batch_size
    (2, 2, 145, 0.0008035, 32)
    """
    stored = _stored()
    if problem not in stored:
        raise ValueError(
            f"Expected a function that the paper has configurations for, one of "
            f"{', '.join(stored)}, got {problem!r}."
        )
    if sampling not in stored[problem]:
        raise ValueError(
            f"Expected one of {', '.join(stored[problem])}, got {sampling!r}."
        )
    if kind not in (None, "single", "ensemble"):
        raise ValueError(f"Expected kind 'single' or 'ensemble', got {kind!r}.")
    found = tuple(Configuration(**entry) for entry in stored[problem][sampling])
    return tuple(
        c for c in found if kind is None or (c.members == 1) == (kind == "single")
    )
