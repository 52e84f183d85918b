"""The feasible set, and how it is read from what a user gives."""

from ennopt.domain.rows import Rows
from ennopt.domain.sets import Domain

__all__ = ["Domain", "Rows"]
