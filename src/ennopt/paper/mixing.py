"""One weighted sum of outputs that bounds an objective where limits hold.

Phase Two treats each network by itself, so it needs a sum of networks. For any
weighting w of the objective, any weighting w_k of each limit ``F_k >= b_k`` and any
multiplier ``lambda_k >= 0``, a feasible point has

    objective  <=  w . f  <=  (w + sum_k lambda_k w_k) . f  -  sum_k lambda_k b_k.

A limit that one network meets by itself needs no multiplier: it stays in the problem of
that network. Nothing here proves anything; any choice gives a valid bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.rounding import UNIT
from ennopt.canonical import Canonical
from ennopt.network import Array, Network
from ennopt.weighting import Weighting


@dataclass(frozen=True, slots=True, eq=False)
class Mixing:
    """Weights of the outputs of a problem, and how far their improvement has come.

    Parameters
    ----------
    goal
        A weighting of the objective, (num_outputs,).
    limits
        One of each limit, (num_limits, num_outputs).
    multipliers
        ``lambda``, (num_limits,), never negative.
    updates
        How many there were.

    Examples
    --------
    >>> from ennopt.domain import Domain
    >>> nets = [Network([[[a]]], [[0.0]]) for a in (1.0, 2.0)]
    >>> Mixing.of(Canonical.sum_of(nets, Domain([0.0], [1.0])), np.zeros(1)).weights
    array([1., 1.])
    """

    goal: Array
    limits: Array
    multipliers: Array
    updates: int = 0

    @classmethod
    def of(cls, problem: Canonical, x: Array) -> Mixing:
        """What is best at a point, with all multipliers zero."""
        outputs = problem.outputs(x[None])[0]
        goal, limits = _responses(problem, outputs)
        return cls(goal, limits, np.zeros(problem.limits.count))

    @property
    def weights(self) -> Array:
        """Of the sum of outputs, (num_outputs,)."""
        return np.asarray(self.goal + self.multipliers @ self.limits)

    def constant(self, problem: Canonical) -> float:
        """What is to be added to the sum, rounding included."""
        least = problem.limits.least - problem.slack
        total = -float(self.multipliers @ least) if problem.limits.count else 0.0
        outputs = np.concatenate([sizes[-1] for sizes in problem.row_sizes])
        weights = np.abs(self.goal) + self.multipliers @ np.abs(self.limits)
        size = float(weights @ outputs + self.multipliers @ np.abs(least))
        return total + 8.0 * (len(outputs) + len(least) + 4) * UNIT * size

    def updated(self, problem: Canonical, outputs: Array) -> Mixing:
        """The next mixing from outputs at the maximizers of the relaxation.

        Weightings go towards the best response, in steps that add up to a mean of all
        responses. Multipliers of limits that are missed there grow.
        """
        step = 1.0 / (self.updates + 2)
        goal, limits = _responses(problem, outputs)
        missed = problem.limits.least - self.limits @ outputs
        spread = np.where(problem.limit_spread > 0.0, problem.limit_spread, 1.0)
        moves = problem.spread * missed / spread**2 / math.sqrt(self.updates + 1)
        own = [keeper(problem, function) is None for function in _limits(problem)]
        return Mixing(
            (1.0 - step) * self.goal + step * goal,
            (1.0 - step) * self.limits + step * limits,
            np.where(own, np.maximum(self.multipliers + moves, 0.0), 0.0),
            self.updates + 1,
        )


def _limits(problem: Canonical) -> tuple[Weighting, ...]:
    return problem.limits.functions


def _responses(problem: Canonical, outputs: Array) -> tuple[Array, Array]:
    found = [function.respond(outputs) for function in _limits(problem)]
    return (
        np.array(problem.weighting.respond(outputs)),
        np.array(found).reshape(len(found), outputs.size),
    )


def owners(problem: Canonical) -> Array:
    """The network of each output, (num_outputs,)."""
    counts = [network.num_outputs for network in problem.networks]
    return np.repeat(np.arange(len(counts)), counts)


def keeper(problem: Canonical, function: Weighting) -> int | None:
    """The one network with hidden layers that a function depends on, if it is one.

    Networks without hidden layers are linear in the inputs, which every problem has.
    """
    used = set(owners(problem)[function.used].tolist())
    deep = [i for i in used if len(problem.networks[i].weights) > 1]
    return deep[0] if len(deep) == 1 else None


def alone(problem: Canonical, mixing: Mixing, i: int, cost: Array) -> Canonical:
    """The part of network i: its share of the sum, its cost, and its own limits.

    Parameters
    ----------
    problem
        The whole.
    mixing
        How outputs are weighted.
    i
        Which network.
    cost
        A linear function of the inputs that is added, (num_inputs,).
    """
    network, of = problem.networks[i], owners(problem)
    linear = Network((cost[None],), (np.zeros(1),))
    if problem.is_sum:
        return Canonical.sum_of([network, linear], problem.domain)
    kept = [k for k, f in enumerate(_limits(problem)) if keeper(problem, f) == i]
    # The share of the sum is the first output; those that limits need come after it,
    # then the cost, then networks without hidden layers that limits need as well.
    places = np.full(problem.num_outputs, -1)
    needed = np.zeros(problem.num_outputs, dtype=bool)
    for k in kept:
        needed |= _limits(problem)[k].used
    mine = np.flatnonzero(needed & (of == i))
    others = [j for j in np.unique(of[needed]).tolist() if j != i]
    weights, biases = network.weights[-1], network.biases[-1]
    share = mixing.weights[of == i]
    own = mine - np.flatnonzero(of == i)[0]
    networks = [
        network.with_output(
            np.vstack([share @ weights, weights[own]]),
            np.append(share @ biases, biases[own]),
        ),
        linear,
    ]
    places[mine] = 1 + np.arange(mine.size)
    count = mine.size + 2
    for j in others:
        networks.append(problem.networks[j])
        here = np.flatnonzero(of == j)
        places[here] = count + np.arange(here.size)
        count += here.size
    goal = np.zeros(count)
    goal[0] = goal[mine.size + 1] = 1.0

    def placed(function: Weighting) -> Weighting:
        found = np.zeros(count)
        found[places[function.weights != 0.0]] = function.weights[
            function.weights != 0.0
        ]
        groups = tuple(
            (tuple(int(places[p]) for p in group), risk)
            for group, risk in function.groups
        )
        return Weighting(found, groups)

    limits = problem.limits
    return Canonical(
        tuple(networks), problem.domain, Weighting(goal),
        type(limits)(
            tuple(placed(limits.functions[k]) for k in kept), limits.least[kept],
            problem.slack[kept] if kept else None,
        ),
    )  # fmt: skip
