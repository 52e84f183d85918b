"""Makes a certificate of a search on neurons: its tree, slopes of leaves, and lemmas.

Nothing here is trusted. The linear programs of the leaves are solved once more for
their multipliers, which are the slopes of lines; the bounds of neurons that the search
used are proved once more by small searches of the same kind. What the checker makes of
both is computed by its own core, so that lemmas claim what it will find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.certificate.checker import about_neuron
from ennopt.certificate.core import Model, Pieces, Prover, functions_of
from ennopt.certificate.lines import upper_lines
from ennopt.certificate.record import CHORD, FLAT, OWN, STEEP, Lemma, Tree
from ennopt.certificate.splits import NONE, Whole, level_order, splits_of
from ennopt.engine.compiled import kernel
from ennopt.engine.program import FREE, HELD_OFF, HELD_ON
from ennopt.engine.schemes import Signs, compiled_tree
from ennopt.engine.tree import Tolerance
from ennopt.network import Array, Network
from ennopt.problem import Problem

CHUNK = 512
"""Leaves whose slopes are made at once."""

CLOSE = 1e-9
"""A slope this close to a special one, relatively, is that one."""

LEMMA_NODES, LEMMA_SHARE = 1000, 1e-3
"""Most nodes of a search for a lemma, and how close to what the search used a bound is
close enough, as a share of the neuron's range."""

LARGEST_SLOPE = 1e30
"""Larger multipliers are not stated: a flat line is as good."""


def certified_signs(
    problem: Problem, canonical: Canonical, scheme: Signs, splits: Whole, bound: float
) -> tuple[Tree, tuple[Lemma, ...]]:
    """The tree of a search on neurons with slopes for its leaves, and its lemmas.

    Parameters
    ----------
    problem, canonical
        What was solved: a plain sum.
    scheme
        The bounds of the neurons that were used.
    splits
        Node, neuron and first child of each split.
    bound
        What is proved of all leaves.
    """
    stacks, functions, added = functions_of(problem)
    domain = problem.domain
    model = Model(stacks, added, domain.lower, domain.upper)
    prover = Prover(model, functions, [math.inf], domain)
    lemmas = tuple(_lemmas(scheme, prover))
    tree, _ = _with_slopes(canonical, scheme, prover, splits, bound)
    return tree, lemmas


def _lemmas(scheme: Signs, prover: Prover) -> Iterator[Lemma]:
    """Bounds of neurons that the checker's own are weaker than, layer by layer.

    The ends of the prover's model become what is proved.
    """
    model, (lows, highs) = prover.model, scheme.bounds.flat()
    for i, stack in enumerate(model.stacks):
        for k in range(1, len(stack.weights)):
            for j in range(len(stack.biases[k])):
                at = stack.columns[k].start + j
                for sign, ends, wanted in (
                    (1.0, model.high, float(highs[at])),
                    (-1.0, model.low, -float(lows[at])),
                ):
                    lemma = _lemma(prover, i, k, j, sign, wanted)
                    if lemma is not None:
                        yield lemma
                        ends[0, at] = sign * lemma.bound


def _lemma(
    prover: Prover, i: int, k: int, j: int, sign: float, wanted: float
) -> Lemma | None:
    """A bound of a neuron that is about as good as the one wanted, if it is needed."""
    stack = prover.model.stacks[i]
    at = stack.columns[k].start + j
    low, high = float(prover.model.low[0, at]), float(prover.model.high[0, at])
    known, spread = sign * (high if sign > 0.0 else low), high - low
    # The line of a neuron whose sign is known is exact already.
    if not low < 0.0 < high or wanted >= known - LEMMA_SHARE * spread:
        return None
    smaller, _ = about_neuron(prover, i, k, j, sign, math.inf)
    part = smaller.model
    if np.any(part.low > part.high):  # nothing is feasible: no lemma is needed
        return None
    layers = part.stacks[0].columns
    bounds = NeuronBounds(
        ((*(part.low[0, own] for own in layers), np.array([-spread])),),
        ((*(part.high[0, own] for own in layers), np.array([known])),),
    )
    alone = Network(
        (*stack.weights[:k], part.stacks[0].rows), (*stack.biases[:k],
                                                    part.stacks[0].shifts)
    )  # fmt: skip
    domain, signs = replace(prover.domain, regions=(), convex=()), Signs(bounds)
    problem = Canonical.sum_of([alone], domain, bounds)
    tree = compiled_tree(signs.compiled(problem), Tolerance(0.0, 0.0, 0.0), True)
    tree.plant()
    nodes, heard, enough = 0, [NONE], wanted + LEMMA_SHARE * spread
    while tree.open and tree.bound > enough and nodes < LEMMA_NODES:
        nodes += tree.explore(max(1, nodes), math.inf, math.inf, 1, 1)
        heard.append(splits_of(tree.journal()))
    proof, bound = _with_slopes(
        problem, signs, smaller, np.concatenate(heard), tree.bound
    )
    bound += 1e-12 * (abs(bound) + float(part.output_sizes[0]))
    return Lemma(i, k, j, sign, bound, proof) if bound < known else None


def _with_slopes(
    problem: Canonical, scheme: Signs, prover: Prover, splits: Whole, bound: float
) -> tuple[Tree, float]:
    """A tree with slopes of its leaves, and what the checker makes of them.

    The slopes prove `bound` or, where the programs cannot, as little more as possible.
    """
    module, compiled = kernel(), scheme.compiled(problem)
    assert module is not None
    planted = compiled_tree(compiled, Tolerance(0.0, 0.0, 0.0))
    planted.plant()
    root, d = planted.snapshot()[:1], problem.num_inputs
    codes = level_order([splits])
    signs, kinds, slopes, multiples, most = (
        _held(codes, problem.num_neurons),
        [],
        [],
        [],
        [-math.inf],
    )
    for start in range(0, len(signs), CHUNK):
        held = signs[start : start + CHUNK]
        rows = np.repeat(root, len(held), axis=0)
        states = rows[:, 2:].view(np.uint8)[:, d : d + problem.num_neurons]
        free = states >> 3 == FREE >> 3
        states[free & (held > 0)], states[free & (held < 0)] = HELD_ON, HELD_OFF
        found = module.sign_multipliers(compiled, rows, bound)
        pieces = prover.root()[np.zeros(len(held), np.intp)]
        pieces.low[held > 0] = np.maximum(pieces.low[held > 0], 0.0)
        pieces.high[held < 0] = np.minimum(pieces.high[held < 0], 0.0)
        told = _Told(pieces, found[:, : problem.num_neurons])
        own = found[:, problem.num_neurons :].astype(np.float32)
        own = np.where(np.isfinite(own), own, np.float32(0.0))
        tops = prover.glance(pieces, told.lines, own.astype(np.float64))
        # Pieces of which nothing is left need no slopes.
        tops = tops[~np.any(pieces.low > pieces.high, axis=1)]
        most.append(float(tops.max(initial=-math.inf)))
        kinds.append(told.kinds)
        slopes.append(told.slopes[told.kinds == OWN])
        multiples.append(own)
    codes[codes > 0] += d
    tree = Tree(
        codes, np.concatenate(kinds), np.concatenate(slopes), np.concatenate(multiples)
    )
    return tree, max(most)


class _Told:
    """Multipliers of neurons as slopes that a certificate can state."""

    def __init__(self, pieces: Pieces, multipliers: Array) -> None:
        self.chord = upper_lines(pieces.low, pieces.high)[0]
        finite = np.isfinite(multipliers) & (np.abs(multipliers) < LARGEST_SLOPE)
        self.wanted = np.where(finite, multipliers, 0.0)
        self.kinds = np.full(multipliers.shape, OWN, np.uint8)
        self.slopes = self.wanted.astype(np.float32)

    def lines(self, own: slice, r: Array) -> Array:
        """The slopes that the checker will read, for these coefficients."""
        wanted, found = self.wanted[:, own], self.slopes[:, own].astype(np.float64)
        close = CLOSE * (np.abs(r) + np.abs(wanted))
        for kind, slope in (
            (CHORD, self.chord[:, own] * r),
            (STEEP, r),
            (FLAT, 0.0 * r),
        ):
            same = np.abs(wanted - slope) <= close
            self.kinds[:, own][same] = kind
            found = np.where(same, slope, found)
        return found


def _held(codes: npt.NDArray[np.uint32], neurons: int) -> npt.NDArray[np.int8]:
    """Signs that are held at each leaf, in order: 1, -1 or 0; (num_leaves, neurons)."""
    level, start, found = np.zeros((1, neurons), np.int8), 0, []
    while len(level):
        own = codes[start : start + len(level)].astype(np.intp)
        start += len(level)
        found.append(level[own == 0])
        inner = np.flatnonzero(own > 0)
        children = np.repeat(level[inner], 2, axis=0)
        at = np.arange(inner.size)
        children[2 * at, own[inner] - 1] = 1
        children[2 * at + 1, own[inner] - 1] = -1
        level = children
    return np.concatenate(found)
