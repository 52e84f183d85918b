"""Nodes of signs for tests: bounded by the kernel, by HiGHS, and in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from ways import MODULE

from ennopt.engine.nodes import Fate
from ennopt.engine.program import FREE, HELD_OFF, HELD_ON, SignPrograms
from ennopt.engine.schemes import compiled_signs
from ennopt.network import Ensemble
from ennopt.tightening.relaxation import Crown
from oracles import canonical


class Case:
    """A problem whose nodes of signs are bounded by the kernel or by HiGHS."""

    def __init__(
        self, ensemble, domain, name="", tightening=Crown(), lines=None  # noqa: B008
    ):  # fmt: skip
        self.problem = canonical(ensemble, domain)
        networks = self.problem.networks
        self.sum = Ensemble(networks, weights=np.ones(len(networks)))
        self.bounds = tightening.tighten(self.problem)
        self.lines = () if lines is None else lines(self.problem, self.bounds)
        self.scheme = compiled_signs(self.problem, self.bounds, name, self.lines)
        self.reference = SignPrograms(self.problem, self.bounds, self.lines)
        self.root = self.reference.root()

    def states(self, rows):
        """The bytes of the neurons of each row, to be read and written."""
        d, n = self.problem.domain.num_inputs, self.sum.num_neurons
        numbers = 2 + 2 * np.count_nonzero(self.problem.domain.values.discrete)
        return rows[:, numbers:].view(np.uint8)[:, d : d + n]

    def ends(self, rows):
        """Lower and upper ends of the discrete inputs, (num_rows, 2, num_discrete)."""
        count = np.count_nonzero(self.problem.domain.values.discrete)
        return rows[:, 2 : 2 + 2 * count].reshape(len(rows), 2, count)

    def held(self, count, rng):
        """Nodes on which some neurons are held and inputs narrowed, the root first."""
        rows = np.repeat(self.root, count, axis=0)
        domain = self.problem.domain
        for ends in self.ends(rows)[1:]:
            points = domain.lower + rng.random((2, domain.num_inputs)) * domain.widths
            chosen = domain.values.nearest(points)[:, domain.values.discrete]
            if rng.random() < 0.7:
                ends[...] = np.sort(chosen, axis=0)
        states = self.states(rows)
        chosen = rng.random(states.shape) < rng.random((count, 1)) * 0.8
        chosen[0] = False
        side = rng.choice([HELD_ON, HELD_OFF], size=states.shape)
        states[...] = np.where((states == FREE) & chosen, side, states)
        return rows

    def bound(self, rows, cutoff=-np.inf):
        return MODULE.bound_signs(self.scheme, np.ascontiguousarray(rows), cutoff)

    def signs_hold(self, row, neurons):
        """Which points, by their neurons (num_points, num_neurons), are in a node."""
        state = self.states(row[None])[0] >> 3 << 3
        return np.all(neurons[:, state == HELD_ON] >= 0.0, axis=1) & np.all(
            neurons[:, state == HELD_OFF] <= 0.0, axis=1
        )

    def neurons(self, points):
        hidden = [h for m in self.sum.members for h in m.preactivations(points)[:-1]]
        return np.concatenate([np.zeros((len(points), 0)), *hidden], axis=1)


def agree(case, count, rng, slack=1e-7):
    """Both find the same optimum, or that there is none; returns how many of each."""
    rows = case.held(count, rng)
    found, _, _ = case.bound(rows)
    size = max(1.0, case.problem.scale)
    empty = 0
    for mine, row in zip(found[:, 0], rows, strict=True):
        other = row.copy()
        case.reference.bound(other, case.states(other[None])[0])
        if other[0] == -np.inf:
            # The kernel proves it by a bound below whatever it is asked for.
            again, told, _ = case.bound(row[None], -1e3 * size)
            assert told[0, 0] == Fate.CLOSED
            assert again[0, 0] <= -1e3 * size
            empty += 1
        else:
            assert mine == pytest.approx(other[0], abs=slack * size)
    return empty


def value_at(ensemble, x):
    """The prediction in fractions."""
    total = Fraction(0)
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        y = x
        for k, (w, b) in enumerate(member.layers()):
            y = [
                sum((Fraction(float(a)) * v for a, v in zip(row, y, strict=True)),
                    Fraction(float(shift)))
                for row, shift in zip(w, b, strict=True)
            ]  # fmt: skip
            if k + 1 < len(member.weights):
                y = [max(v, Fraction(0)) for v in y]
        total += Fraction(float(weight)) * y[0]
    return total
