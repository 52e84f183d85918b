"""The feasible set, and how it is read from what a user gives."""

from ennopt.columns import Group
from ennopt.domain.convex import Ellipsoid, Hull
from ennopt.domain.regions import NearRows
from ennopt.domain.rows import Rows
from ennopt.domain.sets import Domain
from ennopt.domain.trust import Mahalanobis, Near
from ennopt.domain.values import Values

__all__ = [
    "Domain", "Ellipsoid", "Group", "Hull", "Mahalanobis", "Near", "NearRows", "Rows",
    "Values",
]  # fmt: skip
