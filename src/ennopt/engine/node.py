"""The bound of a node in plain NumPy: the specification of the compiled kernel.

A node is a box, a cut (a majorant of the objective inherited from the parent: points
with ``cut(x) < cutoff`` do not matter) and a state per neuron. Bounding a batch of
nodes clips the boxes, bounds the neurons layer by layer, improves the majorant by
slope steps, clips again and says where to branch. Every function here works on whole
batches; `src/kernel` does the same, one node per vector lane, on active neurons only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ennopt.engine.concretise import Cut, argument, clip, support
from ennopt.engine.lines import FirstLayer, anchor
from ennopt.engine.nodes import (
    OFF,
    ON,
    SLOPE_MAX,
    Fate,
    Flags,
    NodeModel,
    Nodes,
    NodeSettings,
    Outcome,
    States,
)
from ennopt.network import Array, Network

CROWDED_SHARE = 0.1
"""Share of unstable neurons above which rows that only ever need the line below ReLU
are not bounded; with few left, skipping them would stall the tree."""

SMEAR_FLOOR = 0.02
"""Weight of the majorant itself in the branching scores: they are never all zero."""


TIE = 1e-12
"""A form moved by a multiple of the cut is zero at the breakpoint up to this share of
the move; rounding must not choose its sign."""


@dataclass(slots=True, eq=False)
class _Layer:
    """Bounds and lines of one layer on a batch; all arrays (num_nodes, width)."""

    low: Array
    high: Array
    on: Flags
    unstable: Flags
    slope: Array  # su
    shift: Array  # tu
    under: Array  # area rule: the slope below ReLU without other knowledge
    smear: Array  # (num_nodes, width, num_inputs): |GU| + |GL|, times radius
    jacobian: Array  # (num_nodes, width, num_inputs): J, times radius
    alpha: Array = field(default_factory=lambda: np.zeros(0))
    coefficient: Array = field(default_factory=lambda: np.zeros(0))


def settle(
    low: Array, high: Array, margin: Array, size: Array, state: States,
    smear: Array, jacobian: Array,
) -> _Layer:  # fmt: skip
    """Widen by the margins, decide states, choose lines. Decided neurons stay so."""
    unstable, on = state < ON, state == ON
    low = np.maximum(low - margin, -size)
    high = np.minimum(high + margin, size)
    off = unstable & (high <= 0.0)
    now_on = unstable & (low >= 0.0) & ~off
    unstable = unstable & ~off & ~now_on
    on = on | now_on
    width = np.where(unstable, high - low, 1.0)
    one = np.where(on, 1.0, 0.0)
    slope = np.where(unstable, high / width, one)
    shift = np.where(unstable, -low * slope, 0.0)
    under = np.where(unstable, np.where(high > -low, 1.0, 0.0), one)
    return _Layer(low, high, on, unstable, slope, shift, under, smear, jacobian)


def row_slopes(layer: _Layer, signs: Array) -> Array:
    """Slopes below ReLU for each row of a later layer (deep rule 1).

    A row is largest near the vertex ``signs`` of its sensitivities; a neuron moves
    there by ``dev = sum_p sign_p J_p``, and the slope is on if it is then positive.
    Returns (num_nodes, num_rows, width).
    """
    dev = signs @ layer.jacobian.transpose(0, 2, 1)
    width = np.where(layer.unstable, layer.high - layer.low, 1.0)[:, None]
    middle = 0.5 * (layer.low + layer.high)[:, None]
    alpha = np.clip(0.5 + (middle + 0.75 * dev) * (5.0 / width), 0.0, 1.0)
    return np.where(layer.unstable[:, None], alpha, layer.slope[:, None])


def bound_rows(
    network: Network, k: int, layers: list[_Layer], first: FirstLayer, cut: Cut,
    settings: NodeSettings, jacobian: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Bounds of all rows of layer k from the relaxed layers before it.

    Returns low and high, (num_nodes, width), and the smear (num_nodes, width, d).
    """
    count = len(cut.a)
    w, b = network.weights[k], network.biases[k]
    rows = np.concatenate([w, -w])  # the lower form is minus the upper form of -row
    form = np.broadcast_to(rows, (count, *rows.shape))
    c = np.broadcast_to(np.concatenate([b, -b]), (count, len(rows))).copy()
    signs = np.sign(np.concatenate([jacobian, -jacobian], axis=1))
    for s in range(k - 1, 0, -1):
        layer = layers[s]
        under = layer.under[:, None]
        if settings.row_slopes:
            under = row_slopes(layer, signs)
        plus, minus = np.maximum(form, 0.0), np.minimum(form, 0.0)
        form = plus * layer.slope[:, None] + minus * under
        c += np.einsum("bri,bi->br", plus, layer.shift) + form @ network.biases[s]
        form = form @ network.weights[s]
    g, c, value = lift(form, c, layers[0], first, cut, settings)
    n = len(w)
    return -value[:, n:], value[:, :n], np.abs(g[:, :n]) + np.abs(g[:, n:])


def lift(
    coefficients: Array, c: Array, layer: _Layer, first: FirstLayer, cut: Cut,
    settings: NodeSettings,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """From coefficients of the first layer's outputs to forms in the inputs.

    Returns slopes times radius, values at the centre, and largest values on the node.
    """
    fixed = np.where(layer.on[:, None], coefficients, 0.0)
    free = np.where(layer.unstable[:, None], coefficients, 0.0)
    stable = fixed @ first.slopes
    base = c + np.einsum("bri,bi->br", fixed, first.centre)
    plus, minus = np.maximum(free, 0.0), np.minimum(free, 0.0)
    slope = plus * layer.slope[:, None] + minus * layer.under[:, None]
    g = stable + slope @ first.slopes
    c = base + np.einsum("bri,bi->br", plus, layer.shift)
    c = c + np.einsum("bri,bi->br", slope, first.centre)
    most, lam = support(g, cut)
    value = c + most
    if not settings.vertex_lines:
        return g, c, value
    # Forms plus the best multiple of the cut are what the lines are fitted to.
    shift = lam[..., None] * cut.a[:, None]
    gain = lam * cut.s[:, None] + cut.unit * lam * cut.size[:, None]
    g, c, value = anchor(
        first, free, (stable + shift, base + gain), (g + shift, c + gain), value,
        TIE * np.abs(shift),
    )  # fmt: skip
    return g - shift, c - gain, value


def slope_byte(alpha: Array) -> Array:
    """A slope in [0, 1] as a byte, halves to the nearer end.

    Rounded the other way, a slope that half steps move to an end would never get there.
    """
    scaled = alpha * SLOPE_MAX
    return np.floor(np.where(alpha < 0.5, scaled + 0.5 - 1e-9, scaled + 0.5))


def step_limit(bound: Array, cutoff: float, size: float, most: int) -> Array:
    """How many slope steps a node deserves: more when it is close to the cutoff.

    Measured by `size`, the larger of ``|cutoff|`` and the objective's spread: an
    objective shifted to zero is no harder.
    """
    distance = bound - cutoff
    near = np.where(distance <= 0.1 * size, min(most, 6), min(most, 1))
    return np.where(distance <= 1e-3 * size, most, near)


class _Batch:
    """The members' layers on a batch of nodes, and the objective on them."""

    def __init__(
        self, model: NodeModel, nodes: Nodes, cut: Cut, settings: NodeSettings
    ) -> None:
        self.model, self.cut = model, cut
        self.centre = 0.5 * (nodes.lower + nodes.upper)
        self.radius = 0.5 * (nodes.upper - nodes.lower) * (1.0 + 1e-15)
        open_others = (nodes.states < ON) & ~model.only_below
        share = CROWDED_SHARE * model.num_neurons
        # Without slope steps the skipped rows' slopes would never improve.
        able = (nodes.flag == 0.0) & (settings.max_steps > 0)
        self.crowded = (open_others.sum(axis=1) > share) & able
        self.layers: list[list[_Layer]] = []
        self.firsts: list[FirstLayer | None] = []
        at = 0
        for i, member in enumerate(model.members):
            mine = slice(at, at + member.num_neurons)
            states, below = nodes.states[:, mine], model.only_below[mine]
            self._add_member(i, member, states, below, settings)
            at += member.num_neurons

    def _add_member(
        self, i: int, member: Network, states: States, below: Flags,
        settings: NodeSettings,
    ) -> None:  # fmt: skip
        model, cut = self.model, self.cut
        layers: list[_Layer] = []
        first: FirstLayer | None = None
        at = 0
        for k, width in enumerate(member.hidden_widths):
            mine = slice(at, at + width)
            state, at = states[:, mine], at + width
            margin, size = model.margins[i][k], model.sizes[i][k]
            if k == 0:
                wr = member.weights[0] * self.radius[:, None, :]
                hc = self.centre @ member.weights[0].T + member.biases[0]
                up, down = support(wr, cut)[0], support(-wr, cut)[0]
                layer = settle(
                    hc - down, hc + up, margin, size, state, 2.0 * np.abs(wr), wr
                )  # fmt: skip
                total, free = np.abs(wr).sum(axis=2), layer.unstable
                first = FirstLayer(
                    wr, hc,
                    np.where(free, hc - total - margin, -1.0),
                    np.where(free, hc + total + margin, 1.0),
                )  # fmt: skip
            else:
                assert first is not None
                slope, before = layers[-1].slope, layers[-1].jacobian
                jacobian = member.weights[k] @ (slope[..., None] * before)
                low, high, smear = bound_rows(
                    member, k, layers, first, cut, settings, jacobian
                )
                skip = self.crowded[:, None] & below[mine]
                low, high = np.where(skip, -size, low), np.where(skip, size, high)
                smear = np.where(skip[..., None], 0.0, smear)
                layer = settle(low, high, margin, size, state, smear, jacobian)
            chosen = np.where(state <= SLOPE_MAX, state / SLOPE_MAX, layer.under)
            layer.alpha = np.where(layer.unstable, chosen, layer.slope)
            layers.append(layer)
        self.layers.append(layers)
        self.firsts.append(first)

    def majorant(self) -> tuple[Array, Array, Array, Array]:
        """Slopes (times radius) and value at the centre of a majorant of the sum.

        Also those of its part without unstable first-layer neurons; each layer keeps
        the coefficients of its outputs.
        """
        count, d = self.centre.shape
        form, base = np.zeros((count, d)), np.zeros((count, d))
        c, base_c = np.zeros(count), np.zeros(count)
        model = self.model
        for member, layers, first in zip(
            model.members, self.layers, self.firsts, strict=True
        ):
            w, b = member.weights[-1][0], member.biases[-1][0]
            if first is None:
                slope, more = w * self.radius, self.centre @ w + b
                form, c = form + slope, c + more
                base, base_c = base + slope, base_c + more
                continue
            row = np.broadcast_to(w, (count, w.size))
            more = np.full(count, b)
            for s in range(len(layers) - 1, 0, -1):
                layer = layers[s]
                layer.coefficient = row
                plus, minus = np.maximum(row, 0.0), np.minimum(row, 0.0)
                row = plus * layer.slope + minus * layer.alpha
                more = more + (plus * layer.shift).sum(axis=1) + row @ member.biases[s]
                row = row @ member.weights[s]
            layer = layers[0]
            layer.coefficient = row
            plus, minus = np.maximum(row, 0.0), np.minimum(row, 0.0)
            slope = plus * layer.slope + minus * layer.alpha
            form = form + np.einsum("bi,bip->bp", slope, first.slopes)
            c = c + more + (plus * layer.shift + slope * first.centre).sum(axis=1)
            fixed = np.where(layer.on, row, 0.0)
            base = base + np.einsum("bi,bip->bp", fixed, first.slopes)
            base_c = base_c + more + (fixed * first.centre).sum(axis=1)
        return form, c, base, base_c

    def improve_slopes(self, z: Array, step: float, going: Flags) -> None:
        """Best response: at z, slopes move towards [h > 0] where they are in use."""
        for member, layers, first in zip(
            self.model.members, self.layers, self.firsts, strict=True
        ):
            if first is None:
                continue
            h = first.centre + np.einsum("bip,bp->bi", first.slopes, z)
            y = h
            for s, layer in enumerate(layers):
                if s > 0:
                    h = y @ member.weights[s].T + member.biases[s]
                below = layer.coefficient < 0.0
                y = np.where(below, layer.alpha * h, layer.slope * h + layer.shift)
                move = step * (np.where(h > 0.0, 1.0, 0.0) - layer.alpha)
                moving = below & layer.unstable & going[:, None]
                layer.alpha = np.where(moving, layer.alpha + move, layer.alpha)

    def anchored(
        self, form: Array, c: Array, base: Array, base_c: Array, lam: Array,
        value: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """First-layer lines at the common vertex of the members, mixed in."""
        shift = lam[:, None] * self.cut.a
        gain = lam * self.cut.s + self.cut.unit * lam * self.cut.size
        pieces = [
            (layers[0], first)
            for layers, first in zip(self.layers, self.firsts, strict=True)
            if first is not None
        ]
        if not pieces:
            return form, c, value
        joined = FirstLayer(
            *(
                np.concatenate([getattr(first, name) for _, first in pieces], axis=1)
                for name in ("slopes", "centre", "lower", "upper")
            )
        )
        free = np.concatenate(
            [np.where(lay.unstable, lay.coefficient, 0.0) for lay, _ in pieces], axis=1
        )
        g, constant, value_2d = anchor(
            joined, free[:, None],
            ((base + shift)[:, None], (base_c + gain)[:, None]),
            ((form + shift)[:, None], (c + gain)[:, None]), value[:, None],
            TIE * np.abs(shift)[:, None], passes=1,
        )  # fmt: skip
        # The rounding of both moves stays in the constant.
        return g[:, 0] - shift, constant[:, 0] - lam * self.cut.s, value_2d[:, 0]

    def scores(self, form: Array) -> Array:
        """Smear: relaxation errors attributed to the inputs they depend on."""
        total = SMEAR_FLOOR * np.abs(form)
        for layers in self.layers:
            for layer in layers:
                a = layer.coefficient
                width = np.where(layer.unstable, layer.high - layer.low, 1.0)
                above = a * layer.shift
                below = -a * np.maximum(
                    (1.0 - layer.alpha) * layer.high, -layer.alpha * layer.low
                )
                error = np.where(a > 0.0, above, below)
                error = np.where(layer.unstable, error, 0.0)
                total = total + np.einsum("bi,bip->bp", error / width, layer.smear)
        return total

    def states(self) -> States:
        """One byte per neuron for the children."""
        parts = [
            np.where(
                layer.unstable,
                slope_byte(np.where(layer.unstable, layer.alpha, 0.0)),
                np.where(layer.on, ON, OFF),
            ).astype(np.uint8)
            for layers in self.layers
            for layer in layers
        ]
        if not parts:
            return np.zeros((len(self.centre), 0), dtype=np.uint8)
        return np.concatenate(parts, axis=1)


def bound_nodes(
    model: NodeModel, settings: NodeSettings, nodes: Nodes, cutoff: float
) -> Outcome:
    """Bound a batch of nodes; their contents become what the children inherit."""
    cutting = bool(np.isfinite(cutoff))
    size = max(abs(cutoff), model.spread)
    inherited, level = nodes.bound.copy(), cutoff if cutting else 0.0
    closed = np.zeros(len(inherited), dtype=bool)
    best = inherited
    old_top, top = np.full((2, len(best)), np.inf)
    if cutting:
        nodes.lower, nodes.upper, old_top, closed = clip(
            nodes.cut, nodes.constant, cutoff, model.reach, model.unit,
            nodes.lower, nodes.upper,
        )  # fmt: skip
        best = np.minimum(best, old_top)
    centre = 0.5 * (nodes.lower + nodes.upper)
    radius = 0.5 * (nodes.upper - nodes.lower) * (1.0 + 1e-15)
    rounding = np.abs(nodes.constant) + abs(level) + np.abs(nodes.cut) @ model.reach
    s = nodes.constant - level + (nodes.cut * centre).sum(axis=1)
    s = np.minimum(s + model.unit * rounding, 1e300)  # no cut yet: infinite
    cut = Cut(nodes.cut * radius, s, cutting, model.unit)
    batch = _Batch(model, nodes, cut, settings)

    least = np.full(len(best), np.inf)
    best_form, best_c = np.zeros_like(centre), np.zeros(len(best))
    going = ~closed
    step = 0
    while True:
        form, c, base, base_c = batch.majorant()
        most, lam = (x[:, 0] for x in support(form[:, None], cut))
        value = c + most
        better = (value < least) & (going | (step == 0))
        least, best_c = np.where(better, value, least), np.where(better, c, best_c)
        best_form = np.where(better[:, None], form, best_form)
        z = argument(form, cut, lam)
        going = going & ~(least + model.margin <= cutoff)
        limit = step_limit(least, cutoff, size, settings.max_steps)
        going = going & (step < limit)
        if not going.any():
            break
        batch.improve_slopes(z, 0.5 / (step + 1), going)
        step += 1
    if settings.output_lines:
        form, c, value = batch.anchored(form, c, base, base_c, lam, value)
        better = value < least
        least, best_c = np.where(better, value, least), np.where(better, c, best_c)
        best_form = np.where(better[:, None], form, best_form)
    best = np.minimum(least + model.margin, best)
    closed = closed | (best <= cutoff)

    safe = np.where(radius > 0.0, radius, 1.0)
    slopes = np.where(radius > 0.0, best_form / safe, 0.0)
    slopes = np.where(np.abs(slopes) < 1e300, slopes, 0.0)
    constant = best_c + model.margin - (slopes * centre).sum(axis=1)
    weight = np.abs(best_c) + np.abs(slopes) @ model.reach
    constant = constant + model.unit * weight
    before = nodes.upper - nodes.lower
    if cutting:
        nodes.lower, nodes.upper, top, empty = clip(
            slopes, constant, cutoff, model.reach, model.unit, nodes.lower, nodes.upper
        )
        closed = closed | empty
    widths = np.where(before > 0.0, before, 1.0)
    shares = np.where(before > 0.0, (nodes.upper - nodes.lower) / widths, 1.0)
    share = shares.prod(axis=1)
    scores = batch.scores(best_form)
    nodes.bound = np.where(best < inherited, best, inherited)
    # Children keep the old cut where it is lower: signs of neurons were decided by it,
    # and where those do not hold it alone closes a node.
    renew = ~(old_top < top) if cutting else np.ones(len(best), dtype=bool)
    nodes.cut = np.where(renew[:, None], slopes, nodes.cut)
    nodes.constant = np.where(renew, constant, nodes.constant)
    nodes.states = batch.states()
    again = ~closed & (share < settings.again) & (nodes.flag == 0.0)
    fate, split, middle = branch(nodes, scores, closed, again)
    nodes.flag = np.where(closed, nodes.flag, np.where(fate == Fate.AGAIN, 1.0, 0.0))
    points = centre + radius * z
    values = sum(m(points)[:, 0] for m in model.members)
    lows = [layer.low for layers in batch.layers for layer in layers]
    highs = [layer.high for layers in batch.layers for layer in layers]
    nothing = np.zeros((len(best), 0))
    return Outcome(
        fate, split, middle, points, np.asarray(values),
        np.concatenate([nothing, *lows], axis=1),
        np.concatenate([nothing, *highs], axis=1), scores,
    )  # fmt: skip


def branch(
    nodes: Nodes, scores: Array, closed: Flags, again: Flags
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Array]:
    """Fate of each node, and the middle of the input of the largest score."""
    middles = 0.5 * (nodes.lower + nodes.upper)
    possible = (nodes.lower < middles) & (middles < nodes.upper)
    ranked = np.where(possible, scores, -np.inf)
    split = np.argmax(ranked, axis=1)
    # Too thin to split: once more, with every row bounded.
    thin = np.where(nodes.flag == 0.0, Fate.AGAIN, Fate.STUCK)
    fate = np.where(possible.any(axis=1), Fate.SPLIT, thin)
    fate = np.where(closed, Fate.CLOSED, np.where(again, Fate.AGAIN, fate))
    split = np.where(fate == Fate.SPLIT, split, -1)
    middle = np.where(split >= 0, middles[np.arange(len(split)), split], 0.0)
    return fate, split, middle
