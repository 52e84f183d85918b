"""Slow, independent truths for small ensembles: what tests compare with.

A ReLU ensemble is linear on each cell of its activation patterns. In one or two
dimensions the cells are polygons, cut exactly vertex by vertex without any solver;
beyond, each pattern is a linear program (SciPy). Nothing here uses the package but
`Network`, `Ensemble`, `Domain` and the problem made of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from ennopt.activations import ACTIVATIONS, Activation, Mixed
from ennopt.canonical import Canonical
from ennopt.domain import Domain, Group, NearRows, Rows, Values
from ennopt.network import Array, Ensemble, Network
from ennopt.problem import Problem

Case = tuple[Ensemble, Domain]


def canonical(ensemble: Ensemble, domain: Domain) -> Canonical:
    """What methods see of maximizing an ensemble."""
    return Canonical.of(Problem(ensemble, domain))


def members(ensemble: Ensemble, domain: Domain) -> Canonical:
    """The members as they are, neither weighted nor merged: for facts about neurons."""
    return Canonical.sum_of(ensemble.members, domain)


def summed(problem: Canonical) -> Ensemble:
    """The objective of a canonical problem as an ensemble."""
    return Ensemble(problem.networks, weights=np.ones(len(problem.networks)))


# Ensembles small enough to enumerate.


def random_network(
    rng: np.random.Generator,
    num_inputs: int = 2,
    widths: Sequence[int] = (4, 3),
    num_outputs: int = 1,
    scale: float = 1.0,
) -> Network:
    """Normal weights (variance 2 / inputs of the layer) and smaller biases."""
    sizes = [num_inputs, *widths, num_outputs]
    weights, biases = [], []
    for n, m in itertools.pairwise(sizes):
        weights.append(scale * rng.normal(size=(m, n)) * np.sqrt(2.0 / n))
        biases.append(scale * rng.normal(size=m) * 0.3)
    return Network(tuple(weights), tuple(biases))


def random_ensemble(
    rng: np.random.Generator,
    num_members: int = 2,
    num_inputs: int = 2,
    widths: Sequence[int] = (4, 3),
    num_outputs: int = 1,
    *,
    scale: float = 1.0,
    weighted: bool = False,
) -> Ensemble:
    """Members of one shape; `weighted` draws member weights of either sign."""
    members = tuple(
        random_network(rng, num_inputs, widths, num_outputs, scale)
        for _ in range(num_members)
    )
    weights = rng.normal(size=num_members) if weighted else None
    return Ensemble(members, weights=weights)


def random_domain(rng: np.random.Generator, num_inputs: int = 2) -> Domain:
    """A box around a random centre, sides of different lengths."""
    centre, radius = rng.normal(size=num_inputs), rng.uniform(0.2, 2.0, num_inputs)
    return Domain(centre - radius, centre + radius)


# Networks with other activations.


def smooth_network(
    rng: np.random.Generator,
    num_inputs: int,
    widths: Sequence[int],
    kinds: Sequence[Activation | str],
    scale: float = 1.0,
) -> Network:
    """As `random_network`, with these activations."""
    plain = random_network(rng, num_inputs, widths, scale=scale)
    return Network(plain.weights, plain.biases, tuple(kinds))


def smooth_case(rng: np.random.Generator, most_inputs: int = 4) -> Case:
    """Members of any activations, layer by layer, some of them side by side."""
    inputs = int(rng.integers(1, most_inputs + 1))
    members = []
    for _ in range(int(rng.integers(1, 4))):
        widths = [int(n) for n in rng.integers(1, 8, size=int(rng.integers(1, 4)))]
        kinds: list[Activation] = []
        for width in widths:
            first, second = rng.choice(list(ACTIVATIONS), 2)
            kind = ACTIVATIONS[first]
            if width > 1 and rng.random() < 0.3:
                kind = Mixed(((kind, 1), (ACTIVATIONS[second], width - 1)))
            kinds.append(kind)
        members.append(smooth_network(rng, inputs, widths, kinds))
    ensemble = Ensemble(tuple(members), weights=rng.normal(size=len(members)))
    return ensemble, random_domain(rng, inputs)


def mixed(
    rng: np.random.Generator, d: int, count: int = 2, equal: bool = False
) -> Domain:
    """A box with rows that some of its points meet."""
    box = random_domain(rng, d)
    inside = box.sample(1, rng)[0]
    matrix = rng.normal(size=(count, d))
    at = matrix @ inside
    least = at - rng.uniform(0.0, 0.3, size=count)
    most = np.where(rng.random(count) < 0.5, np.inf, at + rng.uniform(0.1, 0.5, count))
    if equal:
        least[0] = most[0] = at[0]
    return Domain(box.lower, box.upper, rows=Rows(matrix, least, most))


KINDS = ("rows", "equation", "whole", "list", "group", "near")


def random_set(
    rng: np.random.Generator, kinds: Sequence[str] | None = None
) -> tuple[Domain, list[str]]:
    """A small set that mixes up to four kinds of conditions; some are empty."""
    if kinds is None:
        kinds = rng.choice(KINDS, size=rng.integers(1, 5), replace=False).tolist()
    kinds = list(kinds)
    plain = int(rng.integers(2, 4))
    levels = int(rng.integers(2, 4)) if "group" in kinds else 0
    d = plain + levels
    lower, upper = rng.uniform(-2.0, 0.0, d), rng.uniform(0.5, 2.5, d)
    whole, lists, groups, free = [], {}, (), list(range(plain))
    if "whole" in kinds:
        whole.append(free.pop())
        ends = np.sort(rng.uniform(-4.0, 4.0, 2))
        lower[whole], upper[whole] = ends[0], ends[1] + 1.5
    if "list" in kinds:
        j = free.pop()
        lists[j] = rng.uniform(-2.0, 2.0, rng.integers(1, 5))
        lower[j], upper[j] = -2.0, 2.0
    if levels:
        inputs = tuple(range(plain, d))
        lower[plain:], upper[plain:] = 0.0, 1.0
        whole += inputs
        base = "none" if rng.random() < 0.4 else None
        groups = (Group("kind", inputs, tuple(map(str, inputs)), base),)
    values = Values.of(d, whole, lists)
    box = Domain(lower, upper, values=values, groups=groups)
    rows, regions = None, ()
    if "rows" in kinds or "equation" in kinds:
        count = int(rng.integers(1, 3))
        matrix = rng.normal(size=(count, d))
        at = matrix @ box.sample(1, rng)[0]
        least = at - rng.uniform(0.0, 0.3, count)
        most = at + rng.uniform(0.1, 0.5, count)
        most = np.where(rng.random(count) < 0.5, np.inf, most)
        if "equation" in kinds:
            least[0] = most[0] = at[0]
        if rng.random() < 0.15:
            least, most = least + 3.0, most + 3.0
        rows = Rows(matrix, least, most)
    if "near" in kinds:
        data = box.sample(int(rng.integers(3, 12)), rng)
        radius = rng.uniform(0.05, 0.8, d)
        radius[plain:] = rng.choice([0.0, 1.0])
        regions = (NearRows.rows(data, radius, int(rng.integers(1, 3))),)
    return Domain(lower, upper, None, rows, values, groups, regions), kinds


def exactly_feasible(domain: Domain, x: Array) -> bool:
    """Whether a point is in the set, in fractions; rows within their slack."""
    point = [Fraction(float(e)) for e in x]
    ends = zip(point, domain.lower.tolist(), domain.upper.tolist(), strict=True)
    inside = all(Fraction(low) <= e <= Fraction(high) for e, low, high in ends)
    for e, whole, listed in zip(
        point, domain.values.whole, domain.values.lists, strict=True
    ):
        inside &= not whole or e.denominator == 1
        inside &= listed is None or e in {Fraction(v) for v in listed.tolist()}
    for group in domain.groups:
        chosen = sum(point[j] for j in group.inputs)
        inside &= chosen == 1 or (group.base is not None and chosen == 0)
    for slopes, least, most, slack in zip(
        domain.rows.matrix, domain.rows.least, domain.rows.most, domain.slack,
        strict=False,
    ):  # fmt: skip
        value = sum(
            Fraction(a) * e for a, e in zip(slopes.tolist(), point, strict=True)
        )
        slack = Fraction(float(slack))
        inside &= np.isinf(least) or value >= Fraction(float(least)) - slack
        inside &= np.isinf(most) or value <= Fraction(float(most)) + slack
    for region in domain.regions:
        met = sum(
            all(Fraction(a) <= e <= Fraction(b) for a, e, b in zip(
                low.tolist(), point, high.tolist(), strict=True
            ))
            for low, high in zip(region.lower, region.upper, strict=True)
        )  # fmt: skip
        inside &= met >= region.count
    return bool(inside)


def moved(case: Case, shift: Array) -> Case:
    """The same ensemble and set with all inputs moved by `shift`."""
    ensemble, domain = case
    rows = domain.rows.moved(-shift)
    rows = Rows(rows.matrix, rows.least, rows.most)
    lower, upper = domain.lower + shift, domain.upper + shift
    return ensemble.fold_input(1.0, -shift), Domain(lower, upper, rows=rows)


def random_case(rng: np.random.Generator) -> Case:
    """Random number of members, inputs, layers and widths, still enumerable."""
    d = int(rng.integers(1, 3))
    members = []
    for _ in range(int(rng.integers(1, 4))):
        widths = rng.integers(1, 6, size=int(rng.integers(0, 4)))
        members.append(random_network(rng, d, [int(n) for n in widths]))
    weights = rng.normal(size=len(members)) if rng.random() < 0.3 else None
    return Ensemble(tuple(members), weights=weights), random_domain(rng, d)


def tiny_network(
    rng: np.random.Generator, widest: int, inputs: tuple[int, int]
) -> Network:
    """One to three layers: smooth weights, or whole ones with kinks that coincide."""
    d, depth = int(rng.integers(*inputs)), int(rng.integers(1, 4))
    sizes = [d, *(int(n) for n in rng.integers(1, widest + 1, size=depth)), 1]
    kind = int(rng.integers(0, 3))
    weights, biases = [], []
    for n, m in itertools.pairwise(sizes):
        if kind == 0:
            w, b = rng.uniform(-0.5, 0.5, (m, n)), rng.uniform(-0.5, 0.5, m)
        elif kind == 1:
            w, b = rng.normal(size=(m, n)) * np.sqrt(2 / n), rng.normal(size=m) * 0.3
        else:  # flat maxima, dead neurons
            w = rng.integers(-1, 2, (m, n)).astype(float)
            b = rng.integers(-1, 2, m).astype(float)
        weights.append(w)
        biases.append(b)
    return Network(tuple(weights), tuple(biases))


def _dead(rng: np.random.Generator) -> Case:
    net = random_network(rng)
    bias = np.array(net.biases[0])
    bias[:2] = -100.0
    dead = Network(net.weights, (bias, *net.biases[1:]))
    return Ensemble((dead, random_network(rng))), random_domain(rng)


def _all_dead(rng: np.random.Generator) -> Case:
    net = random_network(rng)
    bias = np.full_like(net.biases[1], -1000.0)
    dead = Network(net.weights, (net.biases[0], bias, net.biases[2]))
    return Ensemble((dead,)), random_domain(rng)


def _without_weights(rng: np.random.Generator) -> Case:
    net = random_network(rng)
    weights, bias = np.array(net.weights[0]), np.array(net.biases[0])
    weights[1], bias[1] = 0.0, 0.0
    pruned = Network((weights, *net.weights[1:]), (bias, *net.biases[1:]))
    return Ensemble((pruned, random_network(rng))), random_domain(rng)


def _constant(rng: np.random.Generator) -> Case:
    constant = Network((np.zeros((3, 2)), np.zeros((1, 3))), (np.ones(3), [0.7]))
    return Ensemble((constant, random_network(rng))), random_domain(rng)


def _duplicated(rng: np.random.Generator) -> Case:
    net = random_network(rng)
    return Ensemble((net, net, net)), random_domain(rng)


def _cancelling(rng: np.random.Generator) -> Case:
    net = random_network(rng)
    return Ensemble((net, net), weights=[1.0, -1.0]), random_domain(rng)


def _zero_width(rng: np.random.Generator) -> Case:
    box = random_domain(rng)
    upper = np.array(box.upper)
    upper[0] = box.lower[0]
    return random_ensemble(rng), Domain(box.lower, upper)


def _one_point(rng: np.random.Generator) -> Case:
    box = random_domain(rng)
    return random_ensemble(rng), Domain(box.lower, box.lower)


def _all_on(rng: np.random.Generator) -> Case:
    net = random_network(rng, 2, (4,))
    on = Network(net.weights, (np.full(4, 100.0), net.biases[1]))
    return Ensemble((on,)), random_domain(rng)


def _shapes(rng: np.random.Generator) -> Case:
    members = tuple(random_network(rng, 2, w) for w in [(), (5,), (3, 3, 2)])
    return Ensemble(members, weights=[0.5, 2.0, -1.0]), random_domain(rng)


def _mixed_scales(rng: np.random.Generator) -> Case:
    tiny, huge = random_network(rng, scale=0.03), random_network(rng, scale=8.0)
    return Ensemble((tiny, huge)), random_domain(rng)


def _kink_at_bound(rng: np.random.Generator) -> Case:
    first = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    net = Network((first, rng.normal(size=(1, 3))), (np.zeros(3), [0.1]))
    return Ensemble((net,)), Domain([0.0, -1.0], [1.0, 0.0])


DEGENERATE: dict[str, Callable[[np.random.Generator], Case]] = {
    "dead neurons": _dead,
    "dead layer": _all_dead,
    "a neuron without weights": _without_weights,
    "constant member": _constant,
    "duplicated members": _duplicated,
    "cancelling members": _cancelling,
    "zero-width input": _zero_width,
    "one point": _one_point,
    "all neurons on": _all_on,
    "one layer": lambda r: (random_ensemble(r, 2, 2, (5,)), random_domain(r)),
    "no hidden layer": lambda r: (random_ensemble(r, 2, 2, ()), random_domain(r)),
    "one member": lambda r: (random_ensemble(r, 1), random_domain(r)),
    "one input": lambda r: (random_ensemble(r, 2, 1), random_domain(r, 1)),
    "members of different shapes": _shapes,
    "huge weights": lambda r: (random_ensemble(r, scale=8.0), random_domain(r)),
    "tiny weights": lambda r: (random_ensemble(r, scale=0.03), random_domain(r)),
    "huge and tiny members": _mixed_scales,
    "kinks at the bounds": _kink_at_bound,
}
"""Named factories of ensembles that trip careless code, with their boxes."""


# Enumeration of activation patterns.


def exact_maximum(ensemble: Ensemble, domain: Domain) -> tuple[float, Array]:
    """The largest prediction of a one-output ensemble, and a point that has it."""
    points = np.concatenate([corners for corners in _cells(ensemble, domain)])
    values = ensemble(points)[:, 0]
    best = int(np.argmax(values))
    return float(values[best]), points[best]


def exact_on(ensemble: Ensemble, domain: Domain) -> float:
    """The largest prediction where linear constraints hold, by linear programs.

    Every activation pattern that a point of a grid shows is a polyhedron on which the
    ensemble is linear; on small networks a fine grid meets all that matter.
    """
    slopes, sides = domain.half_spaces()
    best = -np.inf
    points = domain.sample(4000, np.random.default_rng(0))
    patterns = {}
    for x in points:
        key = tuple(
            (h > 0).tobytes()
            for member in ensemble.members
            for h in member.preactivations(x)[:-1]
        )
        patterns.setdefault(key, x)
    bounds = list(zip(domain.lower, domain.upper, strict=True))
    for x in patterns.values():
        rows, limits, gradient, constant = [-slopes], [-sides], 0.0, 0.0
        for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
            a, c = member.weights[0], member.biases[0]
            for w, b in zip(member.weights[1:], member.biases[1:], strict=True):
                on = a @ x + c > 0
                sign = np.where(on, -1.0, 1.0)
                rows.append(sign[:, None] * a)
                limits.append(-sign * c)
                a, c = (w * on) @ a, (w * on) @ c + b
            gradient = gradient + weight * a[0]
            constant = constant + weight * c[0]
        found = linprog(
            -gradient, A_ub=np.concatenate(rows), b_ub=np.concatenate(limits),
            bounds=bounds,
        )  # fmt: skip
        if found.status == 0:
            best = max(best, constant - found.fun)
    return best


def exact_ranges(ensemble: Ensemble, domain: Domain) -> list[list[tuple[Array, Array]]]:
    """Smallest and largest pre-activations ``[member][layer]`` on the domain."""
    ranges = []
    for member in ensemble.members:
        alone = Ensemble((member,), weights=[1.0])
        targets = list(range(len(member.weights)))
        points = np.concatenate([c for c in _cells(alone, domain, targets)])
        ranges.append(
            [(h.min(axis=0), h.max(axis=0)) for h in member.preactivations(points)]
        )
    return ranges


def exact_preactivations(network: Network, x: Array) -> list[list[Fraction]]:
    """All pre-activations at a point, layer by layer, in exact arithmetic."""
    y, found = [Fraction(v) for v in x.tolist()], []
    for w, b in network.layers():
        h = [
            sum((Fraction(a) * v for a, v in zip(row, y, strict=True)), Fraction(c))
            for row, c in zip(w.tolist(), b.tolist(), strict=True)
        ]
        found.append(h)
        y = [max(v, Fraction(0)) for v in h]
    return found


def grid_maximum(ensemble: Ensemble, domain: Domain, per_side: int = 101) -> float:
    """The largest prediction on a regular grid: a lower bound of the maximum."""
    sides = [
        np.linspace(low, high, per_side)
        for low, high in zip(domain.lower, domain.upper, strict=True)
    ]
    mesh = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
    return float(ensemble(mesh.reshape(-1, domain.num_inputs)).max())


def _cells(
    ensemble: Ensemble, domain: Domain, layers: Sequence[int] = ()
) -> Iterator[Array]:
    """For each activation pattern, points among which its extremes are.

    In one or two dimensions: the vertices of the cell. Beyond: the maximizer of the
    prediction on the cell, and the extremes of the layers asked for.
    """
    if domain.num_inputs <= 2:
        yield from _polygons(ensemble, domain)
    else:
        yield from _programs(ensemble, domain, layers)


def _forms(net: Network, pattern: list[Array]) -> tuple[Array, Array]:
    """The pre-activations of layer len(pattern), linear where `pattern` holds."""
    a, c = net.weights[0], net.biases[0]
    for on, w, b in zip(pattern, net.weights[1:], net.biases[1:], strict=False):
        a, c = (w * on) @ a, (w * on) @ c + b
    return a, c


def _polygons(ensemble: Ensemble, domain: Domain) -> Iterator[Array]:
    low, high = domain.lower, domain.upper
    if domain.num_inputs == 1:
        start = np.array([low, high])
    else:
        start = np.array(
            [low, [high[0], low[1]], high, [low[0], high[1]]], dtype=np.float64
        )
    cells = [start]
    for net in ensemble.members:
        pieces = [(cell, []) for cell in cells]
        for _ in range(len(net.weights) - 1):
            split: list[tuple[Array, list[Array]]] = []
            for cell, pattern in pieces:
                a, c = _forms(net, pattern)
                for part, on in _cut_all(cell, a, c):
                    split.append((part, [*pattern, on]))
            pieces = split
        cells = [cell for cell, _ in pieces]
    yield from cells


def _cut_all(cell: Array, a: Array, c: Array) -> list[tuple[Array, Array]]:
    parts = [(cell, np.zeros(0))]
    for row, shift in zip(a, c, strict=True):
        grown = []
        for part, on in parts:
            h = part @ row + shift
            if (h >= 0).all() or (h <= 0).all():
                grown.append((part, np.append(on, float(h.max() > 0))))
            else:
                grown.append((_half(part, h), np.append(on, 1.0)))
                grown.append((_half(part, -h), np.append(on, 0.0)))
        parts = grown
    return parts


def _half(polygon: Array, h: Array) -> Array:
    """The part of a convex polygon (or segment) where h, linear, is not negative."""
    kept = []
    for j in range(len(polygon)):
        p, q, hp, hq = polygon[j - 1], polygon[j], h[j - 1], h[j]
        if hp * hq < 0:
            t = hp / (hp - hq)
            kept.append(p + t * (q - p))
        if hq >= 0:
            kept.append(q)
    return np.array(kept)


def _programs(
    ensemble: Ensemble, domain: Domain, layers: Sequence[int]
) -> Iterator[Array]:
    box = list(zip(domain.lower, domain.upper, strict=True))
    start = (np.zeros((0, domain.num_inputs)), np.zeros(0))

    def extreme(cost: Array, rows: Array, rhs: Array) -> Array | None:
        found = linprog(-cost, A_ub=rows, b_ub=rhs, bounds=box, method="highs")
        return None if found.x is None else domain.repair(found.x)

    def walk(
        i: int, pattern: list[Array], on: Array, rows: Array, rhs: Array,
        total: tuple[Array, float],
    ) -> Iterator[Array]:  # fmt: skip
        if i == ensemble.num_members:
            if (x := extreme(total[0], rows, rhs)) is not None:
                yield x[None]
            return
        net = ensemble.members[i]
        a, c = _forms(net, pattern)
        if len(pattern) in layers and on.size == 0:
            for row in np.concatenate([a, -a]):
                if (x := extreme(row, rows, rhs)) is not None:
                    yield x[None]
        if len(pattern) == len(net.weights) - 1:
            w = ensemble.weights[i]
            total = (total[0] + w * a[0], total[1] + w * c[0])
            yield from walk(i + 1, [], np.zeros(0), rows, rhs, total)
            return
        if on.size == len(a):
            yield from walk(i, [*pattern, on], np.zeros(0), rows, rhs, total)
            return
        row, shift = a[on.size], c[on.size]
        for sign, active in ((1.0, 1.0), (-1.0, 0.0)):
            x = extreme(sign * row, rows, rhs)
            if x is None or sign * (row @ x + shift) < 0:
                continue  # this side of the cell is empty
            yield from walk(
                i, pattern, np.append(on, active),
                np.vstack([rows, -sign * row]), np.append(rhs, sign * shift), total,
            )  # fmt: skip

    yield from walk(0, [], np.zeros(0), *start, (np.zeros(domain.num_inputs), 0.0))
