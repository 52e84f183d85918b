"""Slower, tighter bounds of neurons: linear programs, MILPs, and chains of them."""

from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.progressive import Tightening
from ennopt.tightening.stepwise import tighten_by_steps

__all__ = ["LpTightening", "MilpTightening", "Tightening", "tighten_by_steps"]
