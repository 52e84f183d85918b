"""The solver boundary: plain-data models, three adapters, the big-M formulation."""

from __future__ import annotations

import importlib.util

from ennopt.milp.solver import Backend

BACKENDS = ("highs", "scip", "gurobi")

_MODULES = {"highs": "highspy", "scip": "pyscipopt", "gurobi": "gurobipy"}


def backend(name: str) -> Backend:
    """The solver of that name: ``"highs"``, ``"scip"`` or ``"gurobi"``.

    Nothing is imported until it solves.

    Examples
    --------
    >>> backend("highs").capabilities.hot_start
    True
    >>> backend("glpk")
    Traceback (most recent call last):
    ...
    ValueError: Expected a backend among highs, scip, gurobi, got 'glpk'.
    """
    if name == "highs":
        from ennopt.milp.highs import Highs

        return Highs()
    if name == "scip":
        from ennopt.milp.scip import Scip

        return Scip()
    if name == "gurobi":
        from ennopt.milp.gurobi import Gurobi

        return Gurobi()
    raise ValueError(f"Expected a backend among {', '.join(BACKENDS)}, got {name!r}.")


def available_backends() -> tuple[str, ...]:
    """Names of the backends whose package is installed, HiGHS first."""
    return tuple(name for name in BACKENDS if importlib.util.find_spec(_MODULES[name]))


def preferred_backend() -> str:
    """SCIP where it is installed, else HiGHS; Gurobi only when asked for by name.

    SCIP takes cuts and shows its nodes; HiGHS does neither.
    """
    return "scip" if "scip" in available_backends() else "highs"
