"""Bounds of an ensemble by exact searches in its members, one at a time.

Any slopes c, one vector for each member f of the ensemble, bound the sum of the members
on a box:

    sum f(x) <= sum of max (f(x) - c x) + max (sum c) x

Each maximum on the right-hand side belongs to one network, and a search on its neurons
takes some hundred nodes where the ensemble would take millions. With the best slopes
the bound is the largest value of the sum of the members' concave envelopes
(Lagrangian relaxation of the copies of x). The slopes of a linear program's multipliers
are a first choice. A bundle method improves them: the points of the searches say what
other slopes could give, within a region around the best slopes so far.

On a node of signs each search is over the part of the box on which the held neurons of
the first layers have their signs, and its own neurons keep theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import UNIT
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.domain.rows import Rows
from ennopt.engine.compiled import kernel
from ennopt.engine.lines_above import LineAbove
from ennopt.engine.pool import output_errors
from ennopt.engine.schemes import compiled_signs, compiled_tree
from ennopt.engine.tree import NOISE_SHARE, Tolerance
from ennopt.network import Array, Network

MOST_NODES = 1500
"""Most nodes of the search in one member: its bound holds whenever it ends."""

SEARCH_PRICE, AIM_PRICE = 50_000.0, 200_000.0
"""What making a search and choosing slopes take, in nodes of a member, divided by the
square of its neurons: a node takes about 20 ns times that square."""

ACCURACY = 0.1
"""Share of the distance from the bound to the cutoff that all searches may leave."""

POINTS = 4
"""Points of a search that the bundle learns from."""

FIRST_RADIUS, LONGER, SHORTER = 0.05, 1.5, 0.5
"""Size of the region of the slopes, as a share of the largest of them at first; and how
it changes where the bundle was right, or wrong."""

LEAST_RADIUS, SECOND_RADIUS = 1e-4, 0.2
"""Where the region is as small as this the searches get more nodes, and the region
grows to this share of the first."""

RIGHT, WRONG, LEFT = 0.3, 0.05, 0.1
"""The bundle was right if its gain came true to at least the first share, wrong below
the second. Steps end if there is no gain and the bundle promises less than the third
share of the distance to the cutoff."""


class Bundle:
    """What is known of the slopes of one node.

    Parameters
    ----------
    slopes
        First slopes, (num_members, num_inputs).

    Attributes
    ----------
    bound
        What the best slopes so far prove.
    nodes
        Nodes of all searches so far.
    price, limit
        The same with what else takes as long as so many nodes, and the most.
    ended
        Whether other slopes hardly help.
    """

    def __init__(self, slopes: Array) -> None:
        self.slopes, self.trial = slopes, slopes
        self.bound, self.promise = math.inf, -math.inf
        self.nodes, self.price = 0, 0.0
        self.radius, self.most, self.accuracy = FIRST_RADIUS, MOST_NODES, ACCURACY
        self.points: list[list[Array]] = [[] for _ in slopes]
        self.values: list[list[float]] = [[] for _ in slopes]
        self.limit, self.ended = math.inf, False

    def meet(self, bound: float, cutoff: float) -> None:
        """Judge the slopes on trial, and choose whether to go on."""
        gain, promised = self.bound - bound, self.bound - self.promise
        if not gain > WRONG * promised:
            self.radius *= SHORTER
        elif gain > RIGHT * promised and math.isfinite(gain):
            self.radius *= LONGER
        if self.radius < LEAST_RADIUS:  # the searches are not exact enough
            self.radius, self.most = FIRST_RADIUS * SECOND_RADIUS, 4 * self.most
            self.accuracy *= 0.5
        if not gain > 0.0 and promised < LEFT * (self.bound - cutoff):
            self.ended = True
        if gain > 0.0:
            self.bound, self.slopes = bound, self.trial

    def aim(self, lower: Array, upper: Array) -> None:
        """Choose the slopes in the region that are best for all points met so far."""
        from ennopt.milp.highs import HotLp
        from ennopt.milp.model import LinearModel

        count, d = self.slopes.shape
        rows, sides = [], []
        for e in range(count):
            for x, value in zip(self.points[e], self.values[e], strict=True):
                row = np.zeros(count * d + count + d)
                row[e * d : (e + 1) * d], row[count * d + e] = x, 1.0
                rows.append(row)
                sides.append(value)
        for p in range(d):
            for end in (lower[p], upper[p]):
                row = np.zeros(count * d + count + d)
                row[p : count * d : d], row[count * d + count + p] = -end, 1.0
                rows.append(row)
                sides.append(0.0)
        widths = np.where(upper > lower, upper - lower, 1.0)
        size = float(np.abs(self.slopes * widths).max()) or 1.0
        room = np.tile(self.radius * size / widths, count)
        free = np.full(count + d, math.inf)
        centre = self.slopes.ravel()
        model = LinearModel.of(
            np.append(centre - room, -free), np.append(centre + room, free),
            np.append(np.zeros(count * d), np.full(count + d, -1.0)),
            np.array(rows), lower_rows=sides,
        )  # fmt: skip
        found = HotLp(model).maximize(model.objective, seconds=1.0)
        if found.x is None:
            self.ended = True
            return
        self.trial = found.x[: count * d].reshape(count, d)
        self.promise = -float(model.objective @ found.x)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The part of the domain of a node, and bounds of the neurons there."""

    domain: Domain
    low: Array
    high: Array


class Members:
    """Bounds of nodes of signs by searches in the members.

    Parameters
    ----------
    problem, bounds
        What is searched: `suit` says whether it can be.
    lines
        The lines above neurons that nodes have bytes for.
    instruction_set
        ``""`` for the best of this machine.

    Attributes
    ----------
    due
        Nodes of the search at which nodes are tried the next time.
    closing
        Whether the last nodes that were tried could be closed.
    nodes, price
        Of all bundles so far.
    raced
        The price when nodes were last left to the tree for comparison.
    root
        The bundle of the whole domain, once there is one.
    """

    def __init__(
        self, problem: Canonical, bounds: NeuronBounds, lines: Sequence[LineAbove],
        instruction_set: str, due: float,
    ) -> None:  # fmt: skip
        self._problem, self._bounds = problem, bounds
        self._lines, self._instructions = lines, instruction_set
        self._signs = compiled_signs(problem, bounds, instruction_set, lines)
        self._low, self._high = bounds.flat()
        self._unstable = (self._low < 0.0) & (self._high > 0.0)
        self._size = problem.num_neurons / len(problem.networks)
        self._first = np.cumsum([0, *(n.num_neurons for n in problem.networks)])
        self.due, self.closing = due, False
        self.nodes, self.price, self.raced = 0, 0.0, 0.0
        self.root: Bundle | None = None

    @staticmethod
    def suit(problem: Canonical) -> bool:
        """Whether there are members, over a box, and a kernel to search them."""
        if kernel() is None or not (problem.is_sum and problem.is_relu):
            return False
        widths = [network.hidden_widths for network in problem.networks]
        hidden = all(own and min(own) > 0 for own in widths)
        return problem.domain.is_box and len(widths) > 1 and hidden

    def prove(
        self, node: Array, cutoff: float, steps: int, nodes: float,
        stop: Callable[[], bool], bundle: Bundle | None = None,
    ) -> Bundle:  # fmt: skip
        """A bound of a node; empty for the root.

        Parameters
        ----------
        node
            As in the tree, (num_numbers,).
        cutoff
            A lower bound is of no use.
        steps
            How often slopes are tried, at most.
        nodes
            The most that may be spent, as `Bundle.price`.
        stop
            Whether to give up.
        bundle
            What to go on with.
        """
        bundle = Bundle(self._slopes(node, stop)) if bundle is None else bundle
        part = self._part(node)
        nodes_before, price_before = bundle.nodes, bundle.price
        bundle.limit = bundle.price + nodes
        for _ in range(steps):
            if bundle.ended or bundle.bound <= cutoff or bundle.price >= bundle.limit:
                break
            if bundle.bound < math.inf:
                bundle.aim(self._problem.domain.lower, self._problem.domain.upper)
                bundle.price += AIM_PRICE / self._size**2
            if bundle.ended or stop():
                break
            bundle.meet(self._bound(part, bundle, cutoff, stop), cutoff)
        self.nodes += bundle.nodes - nodes_before
        self.price += bundle.price - price_before
        return bundle

    def _slopes(self, node: Array, stop: Callable[[], bool]) -> Array:
        """What the program of a node passes from each member to the inputs."""
        module, problem = kernel(), self._problem
        assert module is not None
        while True:  # a program that pauses has a negative flag
            node, _, _, found = module.sign_solution(self._signs, node, -math.inf)
            if node[1] >= 0.0 or stop():
                break
        slopes = np.zeros((len(problem.networks), problem.num_inputs))
        for e, network in enumerate(problem.networks):
            first, width = self._first[e], network.hidden_widths[0]
            slopes[e] = found[first : first + width] @ network.weights[0]
            for line, amount in zip(
                self._lines, found[problem.num_neurons :], strict=True
            ):
                if first <= line.neuron < first + width:
                    slopes[e] += amount * line.slopes
        return slopes

    def _part(self, node: Array) -> _Part:
        """Where the held neurons of the first layers have their signs."""
        from ennopt.engine.program import HELD_OFF, HELD_ON

        problem = self._problem
        count = problem.num_neurons
        if not node.size:
            return _Part(problem.domain, self._low, self._high)
        held = node[2:].view(np.uint8)[problem.num_inputs :][:count] >> 3
        on = self._unstable & (held == HELD_ON >> 3)
        off = self._unstable & (held == HELD_OFF >> 3)
        slopes, sides = [], []
        for first, network in zip(self._first, problem.networks, strict=False):
            weights, bias = network.weights[0], network.biases[0]
            own = slice(first, first + bias.size)
            sign = 1.0 * on[own] - 1.0 * off[own]
            some = sign != 0.0
            slopes.append(sign[some, None] * weights[some])
            sides.append(-sign[some] * bias[some])
        domain, least = problem.domain, np.concatenate(sides)
        if least.size:
            rows = Rows(np.concatenate(slopes), least, np.full(least.size, np.inf))
            slack = rows.slack(domain.lower, domain.upper)
            domain = replace(domain, rows=rows, slack=slack)
        return _Part(
            domain, np.where(on, 0.0, self._low), np.where(off, 0.0, self._high)
        )

    def _bound(
        self, part: _Part, bundle: Bundle, cutoff: float, stop: Callable[[], bool]
    ) -> float:
        """What the slopes on trial prove, rounding included."""
        problem, slopes = self._problem, bundle.trial
        ceiling = min(bundle.bound, problem.range(self._bounds)[1])
        tolerance = bundle.accuracy * (ceiling - cutoff) / len(slopes)
        total = size = 0.0
        for e, network in enumerate(problem.networks):
            if stop():
                return math.inf
            bound, reach, points = self._largest(part, e, bundle, tolerance)
            if bound == -math.inf:  # no input has all signs
                return -math.inf
            total += bound
            size += abs(bound) + reach
            values = network(points)[:, 0] if len(points) else ()
            bundle.points[e].extend(points)
            bundle.values[e].extend(float(value) for value in values)
        lower, upper = problem.domain.lower, problem.domain.upper
        both = slopes.sum(axis=0)
        total += float(np.maximum(both * lower, both * upper).sum())
        size += float(np.abs(slopes).sum(axis=0) @ problem.domain.reach)
        rounding = 8.0 * (len(slopes) + problem.num_inputs + 8) * UNIT * size
        return total + rounding + float(output_errors(problem).sum())

    def _largest(
        self, part: _Part, e: int, bundle: Bundle, tolerance: float
    ) -> tuple[float, float, Array]:
        """The most of member e less its slopes, sizes that are rounded, and points.

        One neuron more in each layer, always on, carries the slopes to the output.
        """
        network, slopes = self._problem.networks[e], bundle.trial[e]
        room = float(np.abs(slopes) @ self._problem.domain.reach) * 1.01 + 1.0
        weights, biases, low, high = [], [], [], []
        at = self._first[e]
        last = len(network.weights) - 1
        for k, (own, bias) in enumerate(network.layers()):
            if k == last:
                weights.append(np.column_stack([own, [1.0]]))
                biases.append(bias - room)
                low.append(self._bounds.lower[e][k] - 3.0 * room)
                high.append(self._bounds.upper[e][k] + 3.0 * room)
                continue
            if k == 0:
                weights.append(np.vstack([own, -slopes]))
            else:
                carried = np.zeros((own.shape[0] + 1, own.shape[1] + 1))
                carried[:-1, :-1], carried[-1, -1] = own, 1.0
                weights.append(carried)
            biases.append(np.append(bias, room if k == 0 else 0.0))
            low.append(np.append(part.low[at : at + bias.size], 0.5))
            high.append(np.append(part.high[at : at + bias.size], 3.0 * room))
            at += bias.size
        alone = Network(tuple(weights), tuple(biases))
        known = NeuronBounds((tuple(low),), (tuple(high),))
        problem = Canonical.sum_of([alone], part.domain, known)
        tree = compiled_tree(
            compiled_signs(problem, known, self._instructions),
            Tolerance(0.0, 0.0, max(tolerance, NOISE_SHARE * problem.noise)),
        )
        tree.plant()
        for x in bundle.points[e][-2 * POINTS :]:
            if part.domain.contains(x):
                tree.offer(x)
        most = max(1.0, min(bundle.most, bundle.limit - bundle.price))
        count = tree.explore(most, math.inf, math.inf, 1, 1)
        bundle.nodes += count
        bundle.price += count + SEARCH_PRICE / self._size**2
        reach = room + float(np.abs(network.biases[-1]).sum())
        return tree.bound, reach, tree.points()[:POINTS]
