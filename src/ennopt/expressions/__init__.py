"""Decisions in terms of predictions and inputs: ``3 * strength - cost``, limits."""

from ennopt.expressions.arithmetic import (
    Arithmetic,
    Condition,
    Deviation,
    Expression,
    Input,
    Prediction,
    Probability,
    linear,
)
from ennopt.expressions.joined import Joined, decided
from ennopt.expressions.text import read_condition, read_expression

__all__ = [
    "Arithmetic",
    "Condition",
    "Deviation",
    "Expression",
    "Input",
    "Joined",
    "Prediction",
    "Probability",
    "decided",
    "linear",
    "read_condition",
    "read_expression",
]
