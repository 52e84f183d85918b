"""Proved optimization over ensembles of ReLU neural networks.

>>> import ennopt
>>> net = ennopt.Network([[[1.0, -1.0]]], [[0.5]])
>>> answer = ennopt.maximize(net, [(0, 1), (0, 1)])
>>> answer.value, answer.bound >= answer.value
(1.5, True)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ennopt.version import VERSION

if TYPE_CHECKING:  # what `__getattr__` imports when it is asked for
    from ennopt.api import maximize, minimize, solve, verify
    from ennopt.bounds.neuron_bounds import NeuronBounds
    from ennopt.checkpoint import Checkpoint
    from ennopt.convert import PredictorNotSupportedError, load
    from ennopt.domain import Domain, Mahalanobis, Near, Rows
    from ennopt.engine.box_search import BoxSearch
    from ennopt.engine.neuron_search import NeuronSearch
    from ennopt.engine.sign_tightening import SignTightening
    from ennopt.expressions import Input, Prediction, linear
    from ennopt.network import Ensemble, ModelConfigurationError, Network
    from ennopt.paper.bigm import BigM
    from ennopt.paper.branch_and_cut import BranchAndCut
    from ennopt.paper.targeted import Targeted
    from ennopt.paper.two_phase import TwoPhase
    from ennopt.problem import Problem
    from ennopt.problem_file import Decision, read_problem
    from ennopt.result import Limits, NoSolutionError, Progress, Result, Status
    from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
    from ennopt.run import Tools
    from ennopt.several.alternatives import Alternatives, alternatives
    from ennopt.several.front import Front, pareto
    from ennopt.several.sensitivity import Sensitivity, sensitivity
    from ennopt.tightening.lp import LpTightening
    from ennopt.tightening.milp import MilpTightening
    from ennopt.tightening.relaxation import Crown, Interval
else:
    _HOMES = {
        "Alternatives": "ennopt.several.alternatives",
        "BigM": "ennopt.paper.bigm",
        "BoxSearch": "ennopt.engine.box_search",
        "BranchAndCut": "ennopt.paper.branch_and_cut",
        "Checkpoint": "ennopt.checkpoint",
        "Crown": "ennopt.tightening.relaxation",
        "Cvar": "ennopt.risk",
        "Decision": "ennopt.problem_file",
        "Domain": "ennopt.domain",
        "Ensemble": "ennopt.network",
        "Front": "ennopt.several.front",
        "Input": "ennopt.expressions",
        "Interval": "ennopt.tightening.relaxation",
        "Limits": "ennopt.result",
        "LpTightening": "ennopt.tightening.lp",
        "Mahalanobis": "ennopt.domain",
        "MeanMinusMad": "ennopt.risk",
        "MeanMinusStd": "ennopt.risk",
        "MilpTightening": "ennopt.tightening.milp",
        "ModelConfigurationError": "ennopt.network",
        "Near": "ennopt.domain",
        "Network": "ennopt.network",
        "NeuronBounds": "ennopt.bounds.neuron_bounds",
        "NeuronSearch": "ennopt.engine.neuron_search",
        "NoSolutionError": "ennopt.result",
        "Prediction": "ennopt.expressions",
        "PredictorNotSupportedError": "ennopt.convert",
        "Problem": "ennopt.problem",
        "Progress": "ennopt.result",
        "Result": "ennopt.result",
        "Rows": "ennopt.domain",
        "Sensitivity": "ennopt.several.sensitivity",
        "SignTightening": "ennopt.engine.sign_tightening",
        "Status": "ennopt.result",
        "Targeted": "ennopt.paper.targeted",
        "Tools": "ennopt.run",
        "TwoPhase": "ennopt.paper.two_phase",
        "Worst": "ennopt.risk",
        "alternatives": "ennopt.several.alternatives",
        "linear": "ennopt.expressions",
        "load": "ennopt.convert",
        "maximize": "ennopt.api",
        "minimize": "ennopt.api",
        "pareto": "ennopt.several.front",
        "read_problem": "ennopt.problem_file",
        "sensitivity": "ennopt.several.sensitivity",
        "solve": "ennopt.api",
        "verify": "ennopt.api",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'ennopt' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__():
        return sorted({*globals(), *_HOMES})


__version__ = VERSION

__all__ = [
    "Alternatives",
    "BigM",
    "BoxSearch",
    "BranchAndCut",
    "Checkpoint",
    "Crown",
    "Cvar",
    "Decision",
    "Domain",
    "Ensemble",
    "Front",
    "Input",
    "Interval",
    "Limits",
    "LpTightening",
    "Mahalanobis",
    "MeanMinusMad",
    "MeanMinusStd",
    "MilpTightening",
    "ModelConfigurationError",
    "Near",
    "Network",
    "NeuronBounds",
    "NeuronSearch",
    "NoSolutionError",
    "Prediction",
    "PredictorNotSupportedError",
    "Problem",
    "Progress",
    "Result",
    "Rows",
    "Sensitivity",
    "SignTightening",
    "Status",
    "Targeted",
    "Tools",
    "TwoPhase",
    "Worst",
    "alternatives",
    "linear",
    "load",
    "maximize",
    "minimize",
    "pareto",
    "read_problem",
    "sensitivity",
    "solve",
    "verify",
]
