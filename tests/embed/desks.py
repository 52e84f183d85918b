"""The four kinds of models that take a predictor, behind one set of verbs."""

import math

import gurobipy
import highspy
import numpy as np
import pyomo.environ as pyo
import pyscipopt

GAP = 1e-9


class GurobiDesk:
    name = "gurobi"

    def __init__(self):
        env = gurobipy.Env(params={"OutputFlag": 0, "Threads": 1})
        self.model = gurobipy.Model(env=env)
        self.model.Params.MIPGap = GAP

    def variable(self, low=-math.inf, high=math.inf, name="v", whole=False):
        kind = "I" if whole else "C"
        return self.model.addVar(lb=low, ub=high, name=name, vtype=kind)

    def constrain(self, constraint):
        return self.model.addConstr(constraint)

    def solve(self, objective, sense="max"):
        self.model.setObjective(objective, -1 if sense == "max" else 1)
        self.model.optimize()
        return self.model.ObjVal

    def reopen(self):
        pass

    def size(self):
        self.model.update()
        return self.model.NumVars, self.model.NumConstrs


class ScipDesk:
    name = "scip"

    def __init__(self):
        self.model = pyscipopt.Model()
        self.model.hideOutput()
        self.model.setParam("limits/gap", GAP)

    def variable(self, low=-math.inf, high=math.inf, name="v", whole=False):
        ends = (side if math.isfinite(side) else None for side in (low, high))
        low, high = ends
        return self.model.addVar(name, vtype="I" if whole else "C", lb=low, ub=high)

    def constrain(self, constraint):
        return self.model.addCons(constraint)

    def solve(self, objective, sense="max"):
        self.model.setObjective(objective, "maximize" if sense == "max" else "minimize")
        self.model.optimize()
        return self.model.getObjVal()

    def reopen(self):
        self.model.freeTransform()

    def size(self):
        return self.model.getNVars(transformed=False), self.model.getNConss(False)


class HighsDesk:
    name = "highs"

    def __init__(self):
        self.model = highspy.Highs()
        self.model.setOptionValue("output_flag", False)
        self.model.setOptionValue("mip_rel_gap", GAP)

    def variable(self, low=-math.inf, high=math.inf, name="v", whole=False):
        kinds = highspy.HighsVarType
        kind = kinds.kInteger if whole else kinds.kContinuous
        return self.model.addVariable(lb=low, ub=high, name=name, type=kind)

    def constrain(self, constraint):
        return self.model.addConstr(constraint)

    def solve(self, objective, sense="max"):
        objective = 1.0 * objective
        if sense == "max":
            self.model.maximize(objective)
        else:
            self.model.minimize(objective)
        return self.model.getObjectiveValue()

    def reopen(self):
        pass

    def size(self):
        return self.model.getNumCol(), self.model.getNumRow()


class PyomoDesk:
    name = "pyomo"
    solver = "appsi_highs"

    def __init__(self):
        self.model = pyo.ConcreteModel()
        self.model.limits = pyo.ConstraintList()

    def variable(self, low=-math.inf, high=math.inf, name="v", whole=False):
        ends = tuple(side if math.isfinite(side) else None for side in (low, high))
        made = pyo.Var(bounds=ends, domain=pyo.Integers if whole else pyo.Reals)
        self.model.add_component(name, made)
        return made

    def constrain(self, constraint):
        return self.model.limits.add(constraint)

    def solve(self, objective, sense="max"):
        self.model.del_component("goal")
        self.model.goal = pyo.Objective(
            expr=objective, sense=pyo.maximize if sense == "max" else pyo.minimize
        )
        solver = pyo.SolverFactory(self.solver)
        if self.solver == "appsi_highs":
            solver.highs_options = {"mip_rel_gap": GAP}
        solver.solve(self.model)
        return pyo.value(self.model.goal)

    def reopen(self):
        pass

    def size(self):
        parts = (pyo.Var, pyo.Constraint)
        return tuple(
            sum(1 for _ in self.model.component_data_objects(part)) for part in parts
        )


DESKS = (GurobiDesk, ScipDesk, HighsDesk, PyomoDesk)


def inputs(desk, domain):
    """A variable for each input, bounded as the domain."""
    return [
        desk.variable(low, high, f"in{j}")
        for j, (low, high) in enumerate(
            zip(domain.lower.tolist(), domain.upper.tolist(), strict=True)
        )
    ]


def total(coefficients, variables):
    """A linear expression."""
    terms = [float(c) * v for c, v in zip(coefficients, variables, strict=True)]
    return sum(terms[1:], start=terms[0])


def constrain(desk, domain, variables):
    """State the linear constraints of the domain."""
    rows = domain.rows
    for slopes, *sides in zip(
        rows.matrix, rows.least.tolist(), rows.most.tolist(), strict=True
    ):
        body, (least, most) = total(slopes, variables), sides
        if least == most:
            desk.constrain(body == least)
            continue
        desk.constrain(body >= least)
        if np.isfinite(most):
            desk.constrain(body <= most)


def rough(value):
    """How close solvers with tolerances of their own come to a value."""
    return 1e-4 * max(1.0, float(np.abs(value)))
