"""What a predictor adds to a model, in plain data: columns and rows for one sample.

The neurons are stated as everywhere in ennopt, by `ennopt.milp.formulation`, in units
of order one, whatever the units of the user's variables. Those keep their units.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ennopt.api import solve
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical, merged
from ennopt.domain import Domain
from ennopt.embed.host import SOS, Pair
from ennopt.engine.sign_tightening import SignTightening
from ennopt.milp.building import ABSENT
from ennopt.milp.formulation import (
    Formulation,
    hidden_layers,
)
from ennopt.milp.model import Indices, LinearModel
from ennopt.milp.scaling import normalized
from ennopt.network import Array, Ensemble
from ennopt.paper.targeted import Targeted
from ennopt.problem import Problem
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.progressive import Tightening, deadline_after, seconds_left
from ennopt.tightening.relaxation import Crown, Interval
from ennopt.tightening.stepwise import tighten_by_steps

_LP = LpTightening(outputs=False)

STEPS: dict[str, tuple[Tightening, ...]] = {
    "interval": (),
    "crown": (Crown(),),
    "lp": (Crown(), _LP),
    "search": (Crown(), _LP, SignTightening(outputs=False)),
    "targeted": (Crown(), Targeted(first=(_LP,))),
    "milp": (Crown(), _LP, MilpTightening(outputs=False)),
}
"""Ways to bound the neurons, by name."""

SEARCHED = "search"
"""The way that bounds the predictions by searches, too."""

OUTPUT_ROOM = 1e-5
"""Share of their size by which bounds of predictions are wider than proved. An optimum
often lies on such a bound: with less room, HiGHS was seen to call its model infeasible.
"""

SEARCH_NODES = 10_000
"""Most nodes of the search for an end of a prediction's range."""

Steps: TypeAlias = str | Tightening | Sequence[Tightening]


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """The columns and rows of one sample.

    Parameters
    ----------
    model
        First a column for each input and for each output, in the user's units, then
        those of the neurons.
    names
        Of the columns of the neurons.
    bounds
        What the neurons were bounded by.
    pairs
        Columns of which at most one is not zero, if neurons are stated so.
    """

    model: LinearModel
    names: tuple[str, ...]
    bounds: NeuronBounds
    pairs: tuple[Pair, ...]


def steps_of(bounds: Steps) -> tuple[Tightening, ...]:
    """The steps of a way to bound neurons, given by name or as such.

    Examples
    --------
    >>> steps_of("crown")
    (Crown(),)
    >>> steps_of("loose")
    Traceback (most recent call last):
    ...
    ValueError: Expected bounds among interval, crown, lp, search, targeted, milp, got
    'loose'.
    """
    if isinstance(bounds, str):
        if bounds not in STEPS:
            raise ValueError(
                f"Expected bounds among {', '.join(STEPS)}, got {bounds!r}."
            )
        return STEPS[bounds]
    steps = tuple(bounds) if isinstance(bounds, list | tuple) else (bounds,)
    for step in steps:
        if isinstance(step, type) or not hasattr(step, "tighten"):
            raise TypeError(
                f"Expected bounds by name or as tightenings such as Crown(), got "
                f"{step!r:.60}. Names are {', '.join(STEPS)}."
            )
    return steps


def made_addition(
    ensemble: Ensemble,
    domain: Domain,
    bounds: Steps,
    formulation: str,
    seconds: float,
) -> Addition:
    """Bound the neurons on the domain, then state them.

    Parameters
    ----------
    ensemble
        Of ReLU networks.
    domain
        Where the inputs may lie; its constraints serve the bounds alone.
    bounds
        How the neurons are bounded.
    formulation
        How they are stated: `BIG_M` or `SOS`.
    seconds
        For the bounds; at the limit, those proved so far are taken.
    """
    steps, deadline = steps_of(bounds), deadline_after(seconds)
    total = Canonical.of(Problem(ensemble, domain, output=_summed(ensemble)))
    known = tighten_by_steps(steps, total, deadline=deadline).bounds
    ranges: list[tuple[float, float]] = []
    if bounds == SEARCHED:
        ranges = [
            _range(ensemble, domain, k, deadline) for k in range(ensemble.num_outputs)
        ]
    box = Domain(domain.lower, domain.upper)
    problem = _with_every_output(ensemble, box)
    return _stated(problem, _on_outputs(problem, known), ranges, formulation)


def attached(
    model: LinearModel, slots: Sequence[object], key: Callable[[object], Hashable]
) -> tuple[LinearModel, list[object]]:
    """The model on variables of a host in place of its first columns.

    Parameters
    ----------
    model
        Whose first columns are `slots`.
    slots
        A variable for each, or a number, which then moves to the other side of rows.
    key
        Tells variables apart: one that stands in several slots becomes one column.

    Returns
    -------
    tuple
        The model, and the variables of its first columns.

    Examples
    --------
    >>> model = LinearModel.of([0] * 4, [1] * 4, [0] * 4, [[1, 2, 3, 4]],
    ...                        upper_rows=[10])
    >>> same, known = attached(model, ["v", 2.0, "v"], str)
    >>> known, same.row(0)[1].tolist(), same.row_upper.tolist()
    (['v'], [4.0, 4.0], [6.0])
    """
    known: dict[Hashable, object] = {}
    numbers = np.zeros(model.num_columns)
    place = np.full(model.num_columns, -1, dtype=np.int64)
    for column, slot in enumerate(slots):
        if isinstance(slot, float):
            numbers[column] = slot
        else:
            known.setdefault(key(slot), slot)
            place[column] = list(known).index(key(slot))
    new = model.num_columns - len(slots)
    place[len(slots) :] = np.arange(len(known), len(known) + new)
    at = np.repeat(np.arange(model.num_rows), np.diff(model.starts))
    moved = np.bincount(
        at, model.coefficients * numbers[model.columns], minlength=model.num_rows
    )
    kept = place[model.columns] >= 0
    width = len(known) + new
    cells, which = np.unique(
        at[kept] * width + place[model.columns][kept], return_inverse=True
    )
    rows = cells // width
    sums = np.bincount(which, model.coefficients[kept], minlength=cells.size)
    outside = np.full(len(known), np.inf)
    attached_model = LinearModel(
        lower=np.concatenate([-outside, model.lower[len(slots) :]]),
        upper=np.concatenate([outside, model.upper[len(slots) :]]),
        objective=np.zeros(width),
        integer=np.concatenate(
            [np.zeros(len(known), np.bool_), model.integer[len(slots) :]]
        ),
        starts=np.searchsorted(rows, np.arange(model.num_rows + 1)),
        columns=cells % width,
        coefficients=np.asarray(sums, dtype=np.float64),
        row_lower=model.row_lower - moved,
        row_upper=model.row_upper - moved,
    )  # fmt: skip
    return attached_model, list(known.values())


def _summed(ensemble: Ensemble) -> Array | None:
    """One output, which surveys ask for; bounds of hidden neurons know of none."""
    return None if ensemble.num_outputs == 1 else np.ones(ensemble.num_outputs)


def _with_every_output(ensemble: Ensemble, domain: Domain) -> Canonical:
    """The networks, each with its share of all outputs."""
    folded, sizes = [], []
    for member, weight in zip(ensemble.members, ensemble.weights, strict=True):
        own = member.fold_output(float(weight), 0.0)
        folded.append(own)
        sizes.append((np.abs(own.weights[-1]), np.abs(own.biases[-1])))
    networks, sums = merged(folded, sizes)
    return Canonical(networks, domain, sizes=sums, additions=len(folded))


def _on_outputs(problem: Canonical, known: NeuronBounds) -> NeuronBounds:
    """Bounds of the hidden neurons, and of the outputs that follow from them."""
    sides = []
    for side, unknown in ((known.lower, -np.inf), (known.upper, np.inf)):
        sides.append(
            tuple(
                (*layers[:-1], np.full(network.num_outputs, unknown))
                for layers, network in zip(side, problem.networks, strict=True)
            )
        )
    return Interval().tighten(problem, NeuronBounds(sides[0], sides[1]))


def _range(
    ensemble: Ensemble, domain: Domain, k: int, deadline: float | None
) -> tuple[float, float]:
    """Between which numbers our own search proves that output k lies."""
    output = None if ensemble.num_outputs == 1 else k
    ends = []
    for sense in ("min", "max"):
        left = seconds_left(deadline)
        problem = Problem(ensemble, domain, sense, output)
        found = solve(
            problem, node_limit=SEARCH_NODES,
            time_limit=max(left, 1e-3) if np.isfinite(left) else None,
        )  # fmt: skip
        ends.append(found.bound)
    return ends[0], ends[1]


def _stated(
    problem: Canonical,
    bounds: NeuronBounds,
    ranges: Sequence[tuple[float, float]],
    formulation: str,
) -> Addition:
    """The model of the hidden layers, with a column and a row for each output.

    Without binaries, a neuron ``h = y - s`` is the linear relaxation of its big-M rows
    and the pair (y, s) of which one is zero.
    """
    units = normalized(problem, bounds)
    made = hidden_layers(units.problem, units.bounds, relaxed=formulation == SOS)
    model, d = made.model, problem.num_inputs
    m = problem.networks[0].num_outputs
    scale = np.ones(model.num_columns)
    scale[:d] = 1.0 / units.inputs  # powers of two: nothing is rounded
    columns, values, sides = [], [], []
    for k in range(m):
        form, constant = _output(made, k)
        form = form * scale
        (used,) = np.nonzero(form)
        columns.append(np.concatenate([[d + k], _behind(used, d, m)]))
        values.append(np.concatenate([[1.0 / units.output], -form[used]]))
        sides.append((constant, constant))
    least, most = _reach(bounds, ranges)
    for k in range(len(ranges)):  # a variable of the user's has bounds of its own
        columns.append(np.array([d + k]))
        values.append(np.array([1.0 / units.output]))
        sides.append((least[k] / units.output, most[k] / units.output))
    low, high = np.array(sides).T
    lengths = [own.size for own in columns]
    stated = replace(
        model,
        lower=np.concatenate([problem.domain.lower, least, model.lower[d:]]),
        upper=np.concatenate([problem.domain.upper, most, model.upper[d:]]),
        objective=np.zeros(model.num_columns + m),
        integer=np.concatenate(
            [model.integer[:d], np.zeros(m, np.bool_), model.integer[d:]]
        ),
        starts=np.concatenate([model.starts, model.starts[-1] + np.cumsum(lengths)]),
        columns=np.concatenate([_behind(model.columns, d, m), *columns]),
        coefficients=np.concatenate(
            [model.coefficients * scale[model.columns], *values]
        ),
        row_lower=np.append(model.row_lower, low),
        row_upper=np.append(model.row_upper, high),
    )
    pairs = _pairs(made, m) if formulation == SOS else ()
    return Addition(stated, _names(made, d), bounds, pairs)


def _reach(
    bounds: NeuronBounds, ranges: Sequence[tuple[float, float]]
) -> tuple[Array, Array]:
    """How far the outputs can go, with room for the tolerances of solvers."""
    low = np.sum([layers[-1] for layers in bounds.lower], axis=0)
    high = np.sum([layers[-1] for layers in bounds.upper], axis=0)
    if ranges and np.isfinite(ranges).all():
        ends = np.array(ranges)
        low, high = np.maximum(low, ends[:, 0]), np.minimum(high, ends[:, 1])
    room = OUTPUT_ROOM * np.maximum(np.abs(low), np.abs(high))
    return low - room, high + room


def _output(made: Formulation, k: int) -> tuple[Array, float]:
    """Output k of all networks together as a function of the columns."""
    form, offset = np.zeros(made.model.num_columns), 0.0
    for i, network in enumerate(made.problem.networks):
        own, constant = made.preactivation(i, len(network.weights) - 1, k)
        form += own
        offset += constant
    return form, offset


def _behind(columns: Indices, d: int, m: int) -> Indices:
    """Columns where those of m outputs stand between inputs and neurons."""
    return np.where(columns < d, columns, columns + m)


def _pairs(made: Formulation, m: int) -> tuple[Pair, ...]:
    """Columns of y and s of each neuron whose sign is open, behind m outputs."""
    return tuple(
        (y + m, s + m)
        for layers in made.neurons
        for layer in layers
        for y, s in zip(layer.y.tolist(), layer.s.tolist(), strict=True)
        if s != ABSENT
    )


def _names(made: Formulation, d: int) -> tuple[str, ...]:
    """``y_1_0_3`` is y of neuron 3 of layer 0 of network 1, and so for s and z."""
    names = [""] * made.model.num_columns
    for i, layers in enumerate(made.neurons):
        for k, layer in enumerate(layers):
            for kind in ("y", "s", "z"):
                for j, column in enumerate(getattr(layer, kind).tolist()):
                    if column != ABSENT:
                        names[column] = f"{kind}_{i}_{k}_{j}"
    return tuple(names[d:])
