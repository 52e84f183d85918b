"""Proved optimization over ensembles of ReLU neural networks.

>>> import ennopt
>>> net = ennopt.Network([[[1.0, -1.0]]], [[0.5]])
>>> answer = ennopt.maximize(net, [(0, 1), (0, 1)])
>>> answer.value, answer.bound >= answer.value
(1.5, True)
"""

from ennopt.api import maximize, minimize
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.convert import PredictorNotSupportedError, load
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.sign_tightening import SignTightening
from ennopt.network import Ensemble, ModelConfigurationError, Network
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.targeted import Targeted
from ennopt.paper.two_phase import TwoPhase
from ennopt.problem import Problem
from ennopt.result import Limits, NoSolutionError, Progress, Result, Status
from ennopt.run import Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.relaxation import Crown, Interval
from ennopt.version import VERSION

__version__ = VERSION

__all__ = [
    "BigM",
    "BoxSearch",
    "BranchAndCut",
    "Crown",
    "Domain",
    "Ensemble",
    "Interval",
    "Limits",
    "LpTightening",
    "MilpTightening",
    "ModelConfigurationError",
    "Network",
    "NeuronBounds",
    "NeuronSearch",
    "NoSolutionError",
    "PredictorNotSupportedError",
    "Problem",
    "Progress",
    "Result",
    "SignTightening",
    "Status",
    "Targeted",
    "Tools",
    "TwoPhase",
    "load",
    "maximize",
    "minimize",
]
