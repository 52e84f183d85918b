"""Many small networks trained at once, in NumPy.

One step of Adam on one small network is mostly overhead: a few dozen calls for a few
thousand multiplications. Here networks of one shape are stacked along a leading axis
and take their steps together. Each network has its own rows, its own learning rate,
its own random stream and its own early stop, and no arithmetic mixes two of them, so
a network comes out the same, bit for bit, whatever it is stacked with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, Network

Single: TypeAlias = npt.NDArray[np.float32]

Report: TypeAlias = Callable[[float], None]
"""Called with the share of the work that was just done, in networks: the shares of a
training add up to the number of its networks."""

FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-7
"""Adam's constants, as in Keras."""

VANISHED = np.float32(1e-30)
"""Moments smaller than this are set to zero once per epoch: those of dead neurons
would decay into denormal numbers, which processors multiply slowly."""

MAX_STACK = 48
"""Networks trained together: more would only spill the caches."""


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What one network is to learn.

    Parameters
    ----------
    x, y
        Rows to fit, (num_rows, num_inputs) and (num_rows,), scaled to about [0, 1].
    x_held, y_held
        Rows that decide when to stop.
    widths
        Number of neurons of each hidden layer.
    learning_rate, batch_size
        Of Adam.
    max_epochs
        Passes over the rows, at most.
    patience
        Passes without a better error on the held rows before stopping.
    stream
        Seed of the initial weights and of the order of the rows.
    """

    x: Array
    y: Array
    x_held: Array
    y_held: Array
    widths: tuple[int, ...]
    learning_rate: float
    batch_size: int
    max_epochs: int
    patience: int
    stream: np.random.SeedSequence

    def shape(self) -> tuple[object, ...]:
        """Lessons of one shape can be stacked."""
        return (
            self.x.shape, self.x_held.shape, self.widths, self.batch_size,
            self.max_epochs, self.patience,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A trained network: the weights of its best epoch.

    Parameters
    ----------
    network
        In the units of the lesson.
    epochs
        Passes over the rows that were made.
    held_error
        Mean squared error on the held rows; infinite if training diverged at once.
    """

    network: Network
    epochs: int
    held_error: float


def learn(lessons: Sequence[Lesson], report: Report | None = None) -> list[Learned]:
    """Train one network for each lesson, in the order given.

    Parameters
    ----------
    lessons
        Any mixture of shapes; those of one shape are trained together.
    report
        Called after each pass over the rows.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for position, lesson in enumerate(lessons):
        groups.setdefault(lesson.shape(), []).append(position)
    learned: dict[int, Learned] = {}
    for positions in groups.values():
        for start in range(0, len(positions), MAX_STACK):
            chosen = positions[start : start + MAX_STACK]
            stack = [lessons[position] for position in chosen]
            for slot, result in _learn_stack(stack, report or (lambda share: None)):
                learned[chosen[slot]] = result
    return [learned[position] for position in range(len(lessons))]


def _learn_stack(
    lessons: Sequence[Lesson], report: Report
) -> Iterator[tuple[int, Learned]]:
    """Train networks of one shape together; yield (position, network) as they end."""
    first = lessons[0]
    rows = first.x.shape[0]
    sizes = (first.x.shape[1], *first.widths, 1)
    streams = [np.random.default_rng(lesson.stream) for lesson in lessons]
    x = np.stack([lesson.x for lesson in lessons]).astype(np.float32)
    y = np.stack([lesson.y for lesson in lessons]).astype(np.float32)[:, :, None]
    x_held = np.stack([lesson.x_held for lesson in lessons]).astype(np.float32)
    y_held = np.stack([lesson.y_held for lesson in lessons]).astype(np.float32)
    rates = np.array([lesson.learning_rate for lesson in lessons], dtype=np.float64)

    stack = _Stack.initial(sizes, streams)
    best = stack.parameters.copy()
    best_error = np.full(len(lessons), np.inf)
    waited = np.zeros(len(lessons), dtype=int)
    alive = np.arange(len(lessons))
    for epoch in range(1, first.max_epochs + 1):
        order = np.stack([streams[i].permutation(rows) for i in alive])
        pick = np.arange(alive.size)[:, None]
        x_now, y_now = x[pick, order], y[pick, order]
        for begin in range(0, rows, first.batch_size):
            end = begin + first.batch_size
            stack.step(x_now[:, begin:end], y_now[:, begin:end], rates)
        stack.flush()
        error = stack.errors(x_held, y_held)
        better = error < best_error
        best[better] = stack.parameters[better]
        best_error = np.where(better, error, best_error)
        waited = np.where(better, 0, waited + 1)
        ended = (waited >= first.patience) | ~np.isfinite(error)
        if epoch == first.max_epochs:
            ended[:] = True
        skipped = int(ended.sum()) * (first.max_epochs - epoch)
        report((alive.size + skipped) / first.max_epochs)
        if not ended.any():
            continue
        for slot in np.flatnonzero(ended):
            network = _network(best[slot], sizes)
            yield int(alive[slot]), Learned(network, epoch, float(best_error[slot]))
        keep = ~ended
        alive, rates = alive[keep], rates[keep]
        x, y, x_held, y_held = x[keep], y[keep], x_held[keep], y_held[keep]
        best, best_error, waited = best[keep], best_error[keep], waited[keep]
        stack = stack.kept(keep)
        if not alive.size:
            return


class _Stack:
    """The weights, gradients and moments of networks of one shape.

    Row ``i`` of `parameters` holds network ``i``: for every layer its weights
    (inputs, outputs) and its bias. The layers are views into those rows, so that
    Adam runs over one array.
    """

    def __init__(
        self, sizes: tuple[int, ...], parameters: Single, moments: tuple[Single, Single]
    ) -> None:
        self.sizes = sizes
        self.parameters = parameters
        self.first_moment, self.second_moment = moments
        self.gradients = np.zeros_like(parameters)
        self.weights, self.biases = _layers(parameters, sizes)
        self.weight_slopes, self.bias_slopes = _layers(self.gradients, sizes)
        self.steps = 0

    @classmethod
    def initial(
        cls, sizes: tuple[int, ...], streams: Sequence[np.random.Generator]
    ) -> _Stack:
        """Glorot's uniform weights and zero biases, as in Keras."""
        count = sum((a + 1) * b for a, b in pairwise(sizes))
        parameters = np.zeros((len(streams), count), dtype=np.float32)
        weights, _ = _layers(parameters, sizes)
        for i, stream in enumerate(streams):
            for layer in weights:
                inputs, outputs = layer.shape[1:]
                limit = np.sqrt(6.0 / (inputs + outputs))
                layer[i] = stream.uniform(-limit, limit, (inputs, outputs))
        zeros = np.zeros_like(parameters)
        return cls(sizes, parameters, (zeros, zeros.copy()))

    def kept(self, keep: npt.NDArray[np.bool_]) -> _Stack:
        """The stack without the networks that have ended."""
        moments = (self.first_moment[keep], self.second_moment[keep])
        other = _Stack(self.sizes, self.parameters[keep], moments)
        other.steps = self.steps
        return other

    def step(self, x: Single, y: Single, rates: Array) -> None:
        """One step of Adam on the mean squared error of a batch of each network."""
        activations = [x]
        for weights, bias in zip(self.weights, self.biases, strict=True):
            h = np.matmul(activations[-1], weights)
            h += bias
            if len(activations) < len(self.weights):
                np.maximum(h, 0, out=h)
            activations.append(h)
        delta = activations.pop()
        delta -= y
        delta *= np.float32(2.0 / x.shape[1])
        ones = np.ones((1, x.shape[1]), dtype=np.float32)
        for k in range(len(self.weights) - 1, -1, -1):
            inputs = activations[k]
            np.matmul(inputs.transpose(0, 2, 1), delta, out=self.weight_slopes[k])
            np.matmul(ones, delta, out=self.bias_slopes[k])
            if k:
                delta = np.matmul(delta, self.weights[k].transpose(0, 2, 1))
                delta *= inputs > 0
        self._adam(rates)

    def _adam(self, rates: Array) -> None:
        # The moments are kept without their factors (1 - decay), which join the
        # bias corrections in one number per network.
        self.steps += 1
        first, second = 1.0 - FIRST_DECAY, 1.0 - SECOND_DECAY
        shrink = np.sqrt(second / (1.0 - SECOND_DECAY**self.steps))
        sizes = rates * first / (1.0 - FIRST_DECAY**self.steps) / shrink
        g, m, v = self.gradients, self.first_moment, self.second_moment
        m *= np.float32(FIRST_DECAY)
        m += g
        v *= np.float32(SECOND_DECAY)
        g *= g
        v += g
        np.sqrt(v, out=g)
        g += np.float32(EPSILON / shrink)
        np.divide(m, g, out=g)
        g *= sizes.astype(np.float32)[:, None]
        self.parameters -= g

    def flush(self) -> None:
        """Set vanished moments to zero."""
        for moment in (self.first_moment, self.second_moment):
            moment[np.abs(moment) < VANISHED] = 0.0

    def errors(self, x: Single, y: Single) -> Array:
        """Mean squared error of each network on its held rows."""
        y_hat = x
        for k, (weights, bias) in enumerate(
            zip(self.weights, self.biases, strict=True), 1
        ):
            y_hat = np.matmul(y_hat, weights)
            y_hat += bias
            if k < len(self.weights):
                np.maximum(y_hat, 0, out=y_hat)
        residuals = (y_hat[:, :, 0] - y).astype(np.float64)
        return np.array([float(r @ r) / r.size for r in residuals])


def _layers(rows: Single, sizes: tuple[int, ...]) -> tuple[list[Single], list[Single]]:
    """Views of the weights (count, inputs, outputs) and biases (count, 1, outputs)."""
    weights: list[Single] = []
    biases: list[Single] = []
    start = 0
    for inputs, outputs in pairwise(sizes):
        end = start + inputs * outputs
        weights.append(rows[:, start:end].reshape(-1, inputs, outputs))
        biases.append(rows[:, end : end + outputs].reshape(-1, 1, outputs))
        start = end + outputs
    return weights, biases


def _network(row: Single, sizes: tuple[int, ...]) -> Network:
    weights, biases = _layers(row[None], sizes)
    return Network(
        tuple(w[0].T.astype(np.float64) for w in weights),
        tuple(b[0, 0].astype(np.float64) for b in biases),
    )
