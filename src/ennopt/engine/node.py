"""The bound of a node in plain NumPy: the specification of the compiled kernel.

A node is a box, a cut (a majorant of the objective inherited from the parent: points
with ``cut(x) < cutoff`` do not matter) and a state per neuron. Bounding a batch of
nodes clips the boxes, bounds the neurons layer by layer (`relaxation`), improves the
majorant by slope steps (`majorant`), clips again and says where to branch. Every
function here works on whole batches; `src/kernel/node.hpp` does the same, one node per
vector lane, on active neurons only. Networks with other activations than ReLU have
other layers (`smooth`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ennopt.engine.concretise import LARGEST, HalfSpaces, argument, clip, empty, support
from ennopt.engine.functions import Functions
from ennopt.engine.majorant import Majorant
from ennopt.engine.nodes import (
    FRESH,
    ON,
    Bounded,
    Fate,
    Flags,
    NodeModel,
    Nodes,
    NodeSettings,
    Past,
)
from ennopt.engine.restore import merits
from ennopt.engine.smooth import SmoothMajorant
from ennopt.network import Array

THIN = 2.0**-20
"""A box with all sides below this share of the domain's trusts no inherited sign."""


NOISE = 4.0
"""A bound this many times the objective's noise above the cutoff is kept there by
rounding."""

ROUNDING_GENERATIONS = 8
"""Generations in which only rounding keeps a node open before it is left as it is."""


def step_limit(bound: Array, cutoff: float, size: float, most: int) -> Array:
    """How many slope steps a node deserves: more when it is close to the cutoff.

    Measured by `size`, the larger of ``|cutoff|`` and the objective's spread: an
    objective shifted to zero is no harder.
    """
    distance = bound - cutoff
    near = np.where(distance <= 0.1 * size, min(most, 6), min(most, 1))
    return np.where(distance <= 1e-3 * size, most, near)


def half_spaces(
    model: NodeModel, nodes: Nodes, cutoff: float, centre: Array, radius: Array
) -> HalfSpaces:
    """The cut, if there is a cutoff, limits, and constraints of the feasible set."""
    slopes, constants = [], []
    if np.isfinite(cutoff):
        rounding = (
            np.abs(nodes.constant) + abs(cutoff) + np.abs(nodes.cut) @ model.reach
        )
        s = nodes.constant - cutoff + (nodes.cut * centre).sum(axis=1)
        slopes.append(nodes.cut * radius)
        # No cut yet: infinite.
        constants.append(np.minimum(s + model.unit * rounding, LARGEST))
    for own in nodes.limits.transpose(1, 0, 2):
        rounding = np.abs(own[:, 0]) + np.abs(own[:, 1:]) @ model.reach
        s = own[:, 0] + (own[:, 1:] * centre).sum(axis=1)
        slopes.append(own[:, 1:] * radius)
        constants.append(np.minimum(s + model.unit * rounding, LARGEST))
    for slope, side in zip(model.slopes, model.sides, strict=True):
        slopes.append(slope * radius)
        rounding = abs(side) + np.abs(slope) @ model.reach
        constants.append(centre @ slope - side + model.unit * rounding)
    count, d = centre.shape
    return HalfSpaces(
        np.array(slopes).reshape(-1, count, d).transpose(1, 0, 2),
        np.array(constants).reshape(-1, count).T,
        model.unit,
    )


def round_inwards(model: NodeModel, nodes: Nodes) -> Flags:
    """Move the ends of boxes to values that inputs may take.

    Returns which boxes hold none, (num_nodes,); those stay as they are.
    """
    if model.values.any:
        return np.zeros(len(nodes.bound), dtype=bool)
    lower, upper = model.values.up(nodes.lower), model.values.down(nodes.upper)
    none = np.any(lower > upper, axis=1)
    nodes.lower = np.where(none[:, None], nodes.lower, lower)
    nodes.upper = np.where(none[:, None], nodes.upper, upper)
    return np.asarray(none)


def bound_nodes(
    model: NodeModel, settings: NodeSettings, nodes: Nodes, cutoff: float
) -> Bounded:
    """Bound a batch of nodes; their contents become what the children inherit."""
    cutting = bool(np.isfinite(cutoff))
    size = max(abs(cutoff), model.spread)
    inherited, best = nodes.bound.copy(), nodes.bound
    closed = np.zeros(len(best), dtype=bool)
    # Where a cut is at work, what is left out is below the cutoff, not below the bound.
    leaning = cutting & np.isfinite(nodes.constant)
    old_top, top = np.full((2, len(best)), np.inf)
    if cutting:
        nodes.lower, nodes.upper, old_top, closed = clip(
            nodes.cut, nodes.constant, cutoff, model.reach, model.unit,
            nodes.lower, nodes.upper,
        )  # fmt: skip
        best = np.minimum(best, old_top)
    infeasible = np.zeros(len(best), dtype=bool)
    for own in nodes.limits.transpose(1, 0, 2):
        nodes.lower, nodes.upper, _, none = clip(
            own[:, 1:], own[:, 0], 0.0, model.reach, model.unit, nodes.lower,
            nodes.upper,
        )  # fmt: skip
        infeasible |= none
    for slope, side in zip(model.slopes, model.sides, strict=True):
        slopes = np.broadcast_to(slope, nodes.lower.shape)
        nodes.lower, nodes.upper, _, none = clip(
            slopes, np.zeros(len(best)), side, model.reach, model.unit,
            nodes.lower, nodes.upper,
        )  # fmt: skip
        infeasible |= none
    for region in model.regions:
        nodes.lower, nodes.upper, none = region.clip(nodes.lower, nodes.upper)
        infeasible |= none
    infeasible |= round_inwards(model, nodes)
    thin = np.all(nodes.upper - nodes.lower <= THIN * model.domain.widths, axis=1)
    doubted = thin[:, None] & (nodes.states >= ON)
    nodes.states = np.where(doubted, FRESH, nodes.states).astype(np.uint8)
    centre = 0.5 * (nodes.lower + nodes.upper)
    radius = 0.5 * (nodes.upper - nodes.lower) * (1.0 + 1e-15)
    halves = half_spaces(model, nodes, cutoff, centre, radius)
    if len(model.sides):
        infeasible |= empty(halves)
    closed |= infeasible
    kind = Majorant if model.is_relu else SmoothMajorant
    inner = kind(model, nodes, centre, radius, halves, settings)
    above: Majorant | SmoothMajorant | Functions = inner
    if not model.is_sum:
        above = Functions(inner, nodes, halves, first=int(cutting))

    least, margin = np.full(len(best), np.inf), np.zeros(len(best))
    best_form, best_c = np.zeros_like(centre), np.zeros(len(best))
    going = ~closed
    step = 0
    while True:
        whole = above.form()
        form, c, error = whole.slopes, whole.centre, whole.margin
        halves = above.halves  # limits have become closer
        most, multipliers = (x[:, 0] for x in support(form[:, None], halves))
        value = c + most
        better = (value < least) & (going | (step == 0))
        least, margin = np.where(better, value, least), np.where(better, error, margin)
        best_c = np.where(better, c, best_c)
        best_form = np.where(better[:, None], form, best_form)
        z = argument(form, halves, multipliers)
        going = going & ~(least + margin <= cutoff)
        limit = step_limit(least, cutoff, size, settings.max_steps)
        if isinstance(above, Functions):
            above.note(multipliers, z)
            infeasible |= above.missed
            going &= ~infeasible
            for over, spread in zip(above.over.T, above.spreads, strict=True):
                more = step_limit(over, 0.0, float(spread), settings.max_steps)
                limit = np.maximum(limit, more)
        going = going & (step < limit)
        if not going.any():
            break
        above.improve_slopes(z, 0.5 / (step + 1), going)
        step += 1
    at_point = c + (form * z).sum(axis=1) - error
    if settings.output_lines:
        form, c, value = above.anchored(whole, multipliers, value)
        better = value < least
        least, margin = np.where(better, value, least), np.where(better, error, margin)
        best_c = np.where(better, c, best_c)
        best_form = np.where(better[:, None], form, best_form)
    closed |= infeasible
    best = np.where(infeasible, -np.inf, np.minimum(least + margin, best))
    closed = closed | (best <= cutoff)

    safe = np.where(radius > 0.0, radius, 1.0)
    slopes = np.where(radius > 0.0, best_form / safe, 0.0)
    slopes = np.where(np.abs(slopes) < LARGEST, slopes, 0.0)
    constant = best_c + margin - (slopes * centre).sum(axis=1)
    weight = np.abs(best_c) + np.abs(slopes) @ model.reach
    constant = constant + model.unit * weight
    low, high = nodes.lower, nodes.upper
    if cutting:
        nodes.lower, nodes.upper, top, none = clip(
            slopes, constant, cutoff, model.reach, model.unit, low, high
        )
        missed = round_inwards(model, nodes) & ~none
        closed = closed | none | missed
        cut_off = np.any((nodes.lower > low) | (nodes.upper < high), axis=1)
        leaning = leaning | (cut_off & ~closed)
        best = np.where(none, np.minimum(best, top), best)
        # What the cut leaves holds no value that inputs may take.
        best = np.where(missed, np.minimum(best, cutoff), best)
    before = high - low
    widths = np.where(before > 0.0, before, 1.0)
    shares = np.where(before > 0.0, (nodes.upper - nodes.lower) / widths, 1.0)
    share = shares.prod(axis=1)
    scores, errors = above.scores(best_form)
    nodes.bound = np.where(best < inherited, best, inherited)
    # Children keep the old cut where it is lower: signs of neurons were decided by it,
    # and where those do not hold it alone closes a node.
    renew = ~(old_top < top) if cutting else np.ones(len(best), dtype=bool)
    nodes.cut = np.where(renew[:, None], slopes, nodes.cut)
    nodes.constant = np.where(renew, constant, nodes.constant)
    nodes.states = above.states()
    points = centre + radius * z
    # Where all signs hold the objective is at most `errors` below the majorant. If it
    # falls short of that, a sign decided under an older cut does not hold here: the
    # children decide all of them anew.
    if isinstance(above, Functions):
        nodes.limits = above.rows(centre, radius)
        values, wrong = merits(model.problem, points), ~closed & above.short()
    else:
        values = np.asarray(sum(network(points)[:, 0] for network in model.networks))
        promised = at_point - errors
        wrong = ~closed & (promised > cutoff) & (values < promised)
    nodes.states = np.where(wrong[:, None], FRESH, nodes.states).astype(np.uint8)
    past = Past.of(nodes.past)
    shrunk = share < settings.again
    # Splitting is of little use where the rest is rounding.
    limited = best <= cutoff + NOISE * model.noise
    tired = limited & (past.generations >= ROUNDING_GENERATIONS)
    fate, split, middle = branch(
        model, nodes, scores, closed, ~past.again, shrunk, tired
    )
    again = fate == Fate.AGAIN
    generations = np.where(limited, past.generations + ~again, 0)
    told = Past(again, generations).packed()
    nodes.past = np.where(closed, nodes.past, told)
    dropped = np.where(leaning, cutoff, -np.inf)
    dropped = np.where(closed, np.maximum(dropped, nodes.bound), dropped)
    lows = [layer.low for layers in above.layers for layer in layers]
    highs = [layer.high for layers in above.layers for layer in layers]
    nothing = np.zeros((len(best), 0))
    return Bounded(
        fate, split, middle, wrong, dropped, points, values,
        np.concatenate([nothing, *lows], axis=1),
        np.concatenate([nothing, *highs], axis=1), scores,
    )  # fmt: skip


def branch(
    model: NodeModel,
    nodes: Nodes,
    scores: Array,
    closed: Flags,
    first: Flags,
    shrunk: Flags,
    tired: Flags,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Array]:
    """Fate of each node, and the middle of the input of the largest score."""
    middles = 0.5 * (nodes.lower + nodes.upper)
    possible = (nodes.lower < middles) & (middles < nodes.upper)
    middles = model.values.down(middles)
    widths = np.where(possible, nodes.upper - nodes.lower, 0.0)
    shares = widths / np.where(model.domain.widths > 0.0, model.domain.widths, 1.0)
    # A score that overflowed must not choose the same input for ever.
    ranked = np.where(np.isnan(scores), shares, scores)
    ranked = np.where(possible, ranked, -np.inf)
    split = np.argmax(ranked, axis=1)
    # Too thin to split: once more, with every row bounded, or on what a clip has left.
    thin = np.where(first | shrunk, Fate.AGAIN, Fate.STUCK)
    fate = np.where(possible.any(axis=1), Fate.SPLIT, thin)
    fate = np.where(tired, Fate.STUCK, fate)
    fate = np.where(first & shrunk, Fate.AGAIN, fate)
    fate = np.where(closed, Fate.CLOSED, fate)
    split = np.where(fate == Fate.SPLIT, split, -1)
    middle = np.where(split >= 0, middles[np.arange(len(split)), split], 0.0)
    return fate, split, middle
