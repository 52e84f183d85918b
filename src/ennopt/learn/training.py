"""From a table to a trained ensemble: split, bagging, early stopping, test error.

As in section 5.2 of the paper: 80% of the rows train and 20% test; of those that
train, 20% decide when to stop; Adam; members are averaged; the root mean squared error
on the test rows is reported.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.extras import require
from ennopt.learn.batched import Learned, Lesson, Report, learn
from ennopt.learn.datasets import Table
from ennopt.network import Array, Ensemble, Network

TEST_SHARE = 0.2
"""Share of the rows on which the error is measured."""

HELD_SHARE = 0.2
"""Share of the training rows that decide when to stop."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is trained, and how: the hyper-parameters.

    Parameters
    ----------
    members
        Number of networks.
    layers, width
        Hidden layers of each, and neurons of each hidden layer.
    learning_rate, batch_size
        Of Adam.
    bagging
        Whether each of several members learns from its own bootstrap sample of the
        training rows. A single network always learns from the rows as they are.
    max_epochs
        Passes over the training rows, at most.
    patience
        Passes without improvement on the held rows before a network stops.
    """

    members: int = 5
    layers: int = 2
    width: int = 40
    learning_rate: float = 1e-3
    batch_size: int = 32
    bagging: bool = True
    max_epochs: int = 500
    patience: int = 20

    def __post_init__(self) -> None:
        for name in (
            "members", "layers", "width", "batch_size", "max_epochs", "patience"
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, Integral) or int(value) < 1:
                raise ValueError(f"Expected {name} as an integer >= 1, got {value!r}.")
            object.__setattr__(self, name, int(value))
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(
                f"Expected a positive learning_rate, got {self.learning_rate}."
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Neurons of each hidden layer."""
        return (self.width,) * self.layers


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One ensemble to train: scaled training rows, configuration and seed.

    Parameters
    ----------
    x, y
        Training rows, (num_rows, num_inputs) and (num_rows,), scaled to [0, 1].
    configuration
        What to train.
    stream
        Seed of everything random.
    """

    x: Array
    y: Array
    configuration: Configuration
    stream: np.random.SeedSequence


Rows: TypeAlias = npt.NDArray[np.intp]


class Toolkit(Protocol):
    """What trains the members of ensembles."""

    def fit(
        self, tasks: Sequence[Task], report: Report | None = None
    ) -> list[list[Learned]]:
        """The members of each task."""
        ...

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions whose versions decide the result."""
        ...


@dataclass(frozen=True)
class Batched:
    """The NumPy trainer: all networks of one shape take their steps together."""

    def fit(
        self, tasks: Sequence[Task], report: Report | None = None
    ) -> list[list[Learned]]:
        """The members of each task."""
        lessons = [lesson for task in tasks for lesson in _lessons(task)]
        learned = iter(learn(lessons, report))
        return [
            [next(learned) for _ in range(task.configuration.members)] for task in tasks
        ]

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions whose versions decide the result."""
        return ("numpy",)


@dataclass(frozen=True)
class ScikitLearn:
    """scikit-learn's ``BaggingRegressor(MLPRegressor(early_stopping=True))``.

    One network at a time, in double precision; the held rows are drawn from each
    bootstrap sample, so that copies of a row may stand on both sides.
    """

    def fit(
        self, tasks: Sequence[Task], report: Report | None = None
    ) -> list[list[Learned]]:
        """The members of each task."""
        return [self._fit(task, report) for task in tasks]

    def _fit(self, task: Task, report: Report | None) -> list[Learned]:
        regressor: Any = require("sklearn.neural_network", "train").MLPRegressor
        bagging: Any = require("sklearn.ensemble", "train").BaggingRegressor
        c = task.configuration
        seed = int(task.stream.generate_state(1)[0])
        model = bagging(
            regressor(
                hidden_layer_sizes=c.widths, learning_rate_init=c.learning_rate,
                batch_size=min(c.batch_size, len(task.x)), max_iter=c.max_epochs,
                early_stopping=True, validation_fraction=HELD_SHARE,
                n_iter_no_change=c.patience, tol=0.0,
            ),
            n_estimators=c.members, bootstrap=c.bagging and c.members > 1,
            random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            exceptions: Any = require("sklearn.exceptions", "train")
            # A network that may still improve after max_epochs is no news here.
            warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
            model.fit(task.x, task.y)
        if report is not None:
            report(c.members)
        return [
            Learned(
                Network(
                    tuple(w.T for w in member.coefs_), tuple(member.intercepts_)
                ),
                int(member.n_iter_), math.nan,
            )
            for member in model.estimators_
        ]  # fmt: skip

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions whose versions decide the result."""
        return ("numpy", "scikit-learn")


TOOLKITS: dict[str, Toolkit] = {"batched": Batched(), "sklearn": ScikitLearn()}
"""Toolkits by name; ``batched`` is the default."""


def branches(
    stream: np.random.SeedSequence, count: int
) -> list[np.random.SeedSequence]:
    """Independent streams of `stream`; the same ones each time it is asked."""
    return [
        np.random.SeedSequence(stream.entropy, spawn_key=(*stream.spawn_key, i))
        for i in range(count)
    ]


def _lessons(task: Task) -> list[Lesson]:
    """One lesson per member: its held rows, its bootstrap sample, its stream."""
    c = task.configuration
    lessons = []
    for stream in branches(task.stream, c.members):
        rng = np.random.default_rng(stream)
        order = rng.permutation(len(task.y))
        num_held = max(1, round(HELD_SHARE * len(order)))
        held, rest = order[:num_held], order[num_held:]
        if c.bagging and c.members > 1:
            # Drawn from the rows that are not held: no row stands on both sides.
            rest = rng.choice(rest, size=rest.size)
        lessons.append(
            Lesson(
                task.x[rest], task.y[rest], task.x[held], task.y[held],
                c.widths, c.learning_rate, c.batch_size, c.max_epochs, c.patience,
                branches(stream, 1)[0],
            )
        )  # fmt: skip
    return lessons


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Which units [0, 1] stands for: inputs by the box, the target by its range.

    Parameters
    ----------
    lower, upper
        Box of the inputs, (num_inputs,).
    low, high
        Range of the target in the table.
    negated
        Whether 1 stands for `low` instead of `high`, so that more is better.
    """

    lower: Array
    upper: Array
    low: float
    high: float
    negated: bool = False

    @classmethod
    def of(cls, table: Table, *, maximized: bool = False) -> Scaling:
        """The scaling of a table.

        Parameters
        ----------
        table
            The rows.
        maximized
            Turn a target that is to be minimized around: more is better after it.
        """
        return cls(
            table.lower, table.upper, float(table.y.min()), float(table.y.max()),
            maximized and table.sense == "min",
        )  # fmt: skip

    def inputs(self, x: Array) -> Array:
        """Scaled inputs."""
        return (x - self.lower) / (self.upper - self.lower)

    def target(self, y: Array) -> Array:
        """Scaled target."""
        if self.negated:
            return (self.high - y) / (self.high - self.low)
        return (y - self.low) / (self.high - self.low)

    def unscaled(self, ensemble: Ensemble) -> Ensemble:
        """The same ensemble in original units; it predicts the target itself."""
        widths = self.upper - self.lower
        folded = ensemble.fold_input(1.0 / widths, -self.lower / widths)
        span = self.high - self.low
        if self.negated:
            folded = folded.fold_output(-span, self.high)
        else:
            folded = folded.fold_output(span, self.low)
        return replace(
            folded, lower=self.lower, upper=self.upper,
            target_range=(self.low, self.high),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A trained ensemble and how good it is.

    Parameters
    ----------
    scaled
        The ensemble on inputs in [0, 1].
    scaling
        What [0, 1] stands for.
    configuration
        What was trained.
    rmse
        Root mean squared error of the ensemble on the test rows, of the scaled target.
    member_rmse
        The same of each member alone.
    epochs
        Passes over the rows that each member made.
    test
        Indices of the test rows in the table.
    data_sha256
        Hash of the table.
    """

    scaled: Ensemble
    scaling: Scaling
    configuration: Configuration
    rmse: float
    member_rmse: tuple[float, ...]
    epochs: tuple[int, ...]
    test: tuple[int, ...]
    data_sha256: str

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble in original units, with the names and the box of its inputs."""
        return self.scaling.unscaled(self.scaled)

    @property
    def rmse_in_units(self) -> float:
        """`rmse` in the unit of the target."""
        return self.rmse * (self.scaling.high - self.scaling.low)


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One call of `train`, to be trained together with others by `train_all`."""

    table: Table
    configuration: Configuration
    stream: np.random.SeedSequence
    maximized: bool = False


def train(
    table: Table,
    configuration: Configuration | None = None,
    *,
    seed: int = 0,
    toolkit: Toolkit | None = None,
    report: Report | None = None,
) -> Trained:
    """Train an ensemble on a table.

    Parameters
    ----------
    table
        The rows.
    configuration
        What to train, and how.
    seed
        Of the split, the bootstrap samples, the initial weights and the batches: same
        seed, same ensemble.
    toolkit
        `Batched()` (the default) or `ScikitLearn()`.
    report
        Called with the share of the work just done, in networks.

    Examples
    --------
    >>> from ennopt.learn.functions import BEALE
    >>> from ennopt.learn.sampling import sample
    >>> small = Configuration(members=2, width=8, max_epochs=3)
    >>> trained = train(sample(BEALE, count=100), small)
    >>> trained.ensemble
    Ensemble(2 x Network(2 -> 8 -> 8 -> 1))
    >>> trained.ensemble.upper
    array([4.5, 4.5])
    """
    order = Order(table, configuration or Configuration(), np.random.SeedSequence(seed))
    return train_all([order], toolkit=toolkit, report=report)[0]


def train_all(
    orders: Sequence[Order],
    *,
    toolkit: Toolkit | None = None,
    report: Report | None = None,
) -> list[Trained]:
    """Train several ensembles; a batched toolkit trains all of one shape together.

    Each comes out the same, bit for bit, as if it were trained alone.
    """
    chosen = Batched() if toolkit is None else toolkit
    scalings = [Scaling.of(o.table, maximized=o.maximized) for o in orders]
    splits = [_split(order) for order in orders]
    tasks = [
        Task(
            scaling.inputs(order.table.x[rows]), scaling.target(order.table.y[rows]),
            order.configuration, stream,
        )
        for order, scaling, (rows, _, stream) in zip(
            orders, scalings, splits, strict=True
        )
    ]  # fmt: skip
    learned = chosen.fit(tasks, report)
    return [
        _trained(order, scaling, test, members)
        for order, scaling, (_, test, _), members in zip(
            orders, scalings, splits, learned, strict=True
        )
    ]


def _split(order: Order) -> tuple[Rows, Rows, np.random.SeedSequence]:
    """Training rows, test rows and the stream of what follows."""
    rows, members = order.table.num_rows, order.configuration.members
    num_test = max(1, round(TEST_SHARE * rows))
    num_held = max(1, round(HELD_SHARE * (rows - num_test)))
    if rows - num_test - num_held < max(2, members):
        raise ValueError(
            f"Expected at least as many rows to fit as members ({members}), got "
            f"{max(0, rows - num_test - num_held)} of {rows} rows left after the test "
            "rows and the held rows. Add rows or train fewer members."
        )
    split, fit = branches(order.stream, 2)
    permutation = np.random.default_rng(split).permutation(rows)
    return permutation[num_test:], permutation[:num_test], fit


def training_rows(table: Table, seed: int) -> Rows:
    """The rows that `train` with this seed trains on: all but its test rows."""
    stream = np.random.SeedSequence(seed)
    return _split(Order(table, Configuration(members=1), stream))[0]


def _trained(
    order: Order, scaling: Scaling, test: Rows, learned: Sequence[Learned]
) -> Trained:
    table = order.table
    ensemble = Ensemble(
        tuple(one.network for one in learned), input_names=table.input_names,
        lower=np.zeros(table.num_inputs), upper=np.ones(table.num_inputs),
    )  # fmt: skip
    x, y = scaling.inputs(table.x[test]), scaling.target(table.y[test])
    residuals = ensemble.member_values(x)[:, :, 0] - y
    return Trained(
        ensemble, scaling, order.configuration,
        rmse=_rms(np.tensordot(ensemble.weights, residuals, axes=1)),
        member_rmse=tuple(_rms(r) for r in residuals),
        epochs=tuple(one.epochs for one in learned),
        test=tuple(int(i) for i in test),
        data_sha256=table.sha256,
    )  # fmt: skip


def _rms(residuals: Array) -> float:
    return float(np.sqrt(np.mean(residuals**2)))
