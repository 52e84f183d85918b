"""Two small searches for each neuron that is still unstable: exact, or nearly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.compiled import kernel
from ennopt.engine.schemes import compiled_signs, compiled_tree
from ennopt.engine.slices import in_slices
from ennopt.engine.tree import Tolerance, Tree
from ennopt.network import Network
from ennopt.tightening.progressive import Done, Job, Progressive

SMALL = 20
"""Neurons before a neuron up to which its searches may take all their nodes; a node
costs about the square of their number."""


@dataclass(frozen=True, slots=True)
class SignTightening(Progressive):
    """Extremes of each unstable neuron by branching on the signs of those before it.

    What the search has proved when its nodes are spent holds. It needs the compiled
    kernel; without it, bounds stay what they are.

    Parameters
    ----------
    nodes
        Most nodes of each search; fewer where more than 20 neurons come before.
    share
        A bound this close to a value reached, as a share of the neuron's range, is
        good enough.
    outputs
        Whether to bound the predictions of the members, too.
    instruction_set
        ``""`` for the best of this machine.

    Examples
    --------
    >>> from ennopt import Domain
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Canonical.sum_of([net], Domain([-1.0], [2.0]))
    >>> bounds = SignTightening().tighten(problem)
    >>> bounds.upper[0][1].round(2).tolist()
    [2.0]
    """

    nodes: int = 1000
    share: float = 1e-3
    outputs: bool = True
    instruction_set: str = ""

    def __post_init__(self) -> None:
        if self.nodes != int(self.nodes) or self.nodes < 1:
            raise ValueError(f"Expected a whole number of nodes, got {self.nodes}.")
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"Expected a share in (0, 1), got {self.share}.")

    def _work(self) -> tuple[Callable[[Job], Done], int]:
        return functools.partial(_solve, self), 1


def _solve(step: SignTightening, job: Job) -> Done:
    low, high = job.bounds.lower[0][job.layer], job.bounds.upper[0][job.layer]
    before = max(SMALL, sum(job.network.hidden_widths[: job.layer]))
    nodes = math.ceil(step.nodes * (SMALL / before) ** 2)
    upper = np.full(job.neurons.size, math.inf)
    lower = -upper
    neurons = solves = 0
    for index, j in enumerate(job.neurons.tolist()):
        tolerance = step.share * float(high[j] - low[j])
        for sign, side in ((1.0, upper), (-1.0, lower)):
            if job.remaining() <= 0 or kernel() is None:
                return Done(lower, upper, neurons, solves)
            neurons = index + 1
            tree = _tree(job, j, sign, tolerance, step.instruction_set)
            side[index] = sign * _explored(tree, nodes, job)
            solves += 1
            if job.hidden and upper[index] <= 0:
                break  # off: its lower bound is of no use
    return Done(lower, upper, neurons, solves)


def _tree(job: Job, j: int, sign: float, tolerance: float, instructions: str) -> Tree:
    """A search for the largest value of `sign` times the pre-activation of neuron j."""
    k, network = job.layer, job.network
    alone = Network(
        (*network.weights[:k], sign * network.weights[k][j : j + 1]),
        (*network.biases[:k], sign * network.biases[k][j : j + 1]),
    )
    low, high = job.bounds.lower[0], job.bounds.upper[0]
    ends = sorted((sign * low[k][j], sign * high[k][j]))
    known = NeuronBounds(
        ((*low[:k], np.array(ends[:1])),), ((*high[:k], np.array(ends[1:])),)
    )
    # What holds on a wider set holds on this one: regions do not count here.
    domain = replace(job.problem.domain, regions=(), convex=())
    problem = Canonical.sum_of([alone], domain, known)
    signs = compiled_signs(problem, known, instructions)
    tree = compiled_tree(signs, Tolerance(0.0, 0.0, tolerance))
    tree.plant()
    return tree


def _explored(tree: Tree, nodes: int, job: Job) -> float:
    """What the search proves with so many nodes, in the time of the job."""
    for _ in in_slices(
        tree, nodes=nodes, remaining=job.remaining, bytes=math.inf, dive=1, threads=1
    ):
        pass
    # Where nothing is feasible any bound holds; an infinite one is of no use.
    return tree.bound if tree.bound > -math.inf else math.inf
