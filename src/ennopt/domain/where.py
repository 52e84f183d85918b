"""What a user says about the inputs, and how all of it narrows one set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ennopt.columns import Group
from ennopt.domain.constraints import constrained
from ennopt.domain.data import Data
from ennopt.domain.discrete import discretised
from ennopt.domain.files import Stated
from ennopt.domain.sets import Domain
from ennopt.domain.trust import trusted


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Where:
    """Where to look for the best input, as the user says it; see `ennopt.maximize`."""

    domain: Any = None
    data: Any = None
    target: Any = None
    constraints: Any = None
    fixed: Any = None
    integers: Any = None
    values: Any = None
    categories: Any = None
    trust: Any = None

    def check_target(self, data: Data | None) -> None:
        """Refuse a target without rows of data that it belongs to."""
        if self.target is not None and data is None:
            raise ValueError(
                "Expected rows of data with a target, got none. Pass data=X, or leave "
                "the target out."
            )


class Place(NamedTuple):
    """A feasible set, and the rows of data that were given with it, if any."""

    domain: Domain
    data: Data | None


def narrowed(
    domain: Domain,
    where: Where,
    said: Stated,
    data: Data | None,
    integers: Sequence[int],
    values: Any,
    groups: Sequence[Group],
) -> Place:
    """The part of a domain that meets all that is said beside bounds.

    Parameters
    ----------
    domain
        What the bounds leave.
    where, said
        Constraints and trust regions, as the user and a file of bounds state them.
    data
        The rows to trust a model near.
    integers
        Numbers of the inputs that take whole numbers only.
    values
        Lists of values by the name of the input.
    groups
        Categories beside those that the domain has.
    """
    domain = discretised(domain, integers, values, groups)
    domain = constrained(constrained(domain, said.constraints), where.constraints)
    return Place(trusted(trusted(domain, said.trust, data), where.trust, data), data)
