"""Networks and ensembles of them as plain float64 arrays.

Everything foreign is converted once, at the edge, into these two types; nothing
downstream knows about frameworks, scalers or units. An ensemble remembers which columns
of the user's table its inputs are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.activations import RELU, Activation, Mixed, activation_named
from ennopt.columns import Column, check_columns
from ennopt.targets import Target

Array: TypeAlias = npt.NDArray[np.float64]


SIZE_LIMIT = 2**27
"""Numbers that any model may take while it is read: 1 GiB of float64."""

SIZE_GROWTH = 16
"""Numbers that reading may take beyond `SIZE_LIMIT` for each number stored."""


def shown(text: str) -> str:
    r"""Text from a model or a table, safe to print.

    Names are kept exactly as they were given. Where they are shown, characters that
    cannot be seen are escaped as Python does, so that a name can neither move the
    cursor of a terminal nor change the order of what stands beside it.

    Examples
    --------
    >>> print(shown("heat") + " " + shown("flow\x1b[2J"))
    heat flow\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class ModelConfigurationError(ValueError):
    """The model was recognised, but its configuration cannot be optimized over."""

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


def check_size(numbers: int, stored: int, where: str) -> None:
    """Refuse a model that would grow far beyond what is stored of it.

    Called with sizes that a file declares, before anything of these sizes exists.

    Parameters
    ----------
    numbers
        How many numbers reading it takes so far.
    stored
        How many numbers are stored of it.
    where
        The place that asks for the last of them.
    """
    limit = SIZE_LIMIT + SIZE_GROWTH * stored
    if numbers > limit:
        raise ModelConfigurationError(
            f"Expected a model that takes at most {limit:,} numbers "
            f"({limit / 2**27:.3g} GiB) to read, got {numbers:,} ({stored:,} of them "
            f"stored) at {where}. Each layer is kept as a full matrix, so that a "
            "convolution or a rescaling of neurons takes the product of two widths: "
            f"two widths of {math.isqrt(limit):,} would just fit. Take smaller inputs, "
            "fewer channels or a narrower network."
        )


def frozen(values: npt.ArrayLike) -> Array:
    """Our own read-only float64 copy of `values`."""
    try:
        array = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected an array of numbers, got {values!r:.80}. "
            "Pass floats or an array of floats."
        ) from error
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Feed-forward network: affine layers, ReLU between them, the last layer affine.

    Parameters
    ----------
    weights
        One matrix per affine layer, each of shape (num_outputs, num_inputs) of that
        layer. One matrix alone is a linear model (no hidden layer).
    biases
        One vector per affine layer, of shape (num_outputs,) of that layer.
    activations
        One per hidden layer, by name (``"tanh"``) or as an `Activation`; ``None`` is
        ReLU in all of them.

    Examples
    --------
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> net([[-2.0], [3.0]]).ravel().tolist()  # the absolute value
    [2.0, 3.0]
    >>> net
    Network(1 -> 2 -> 1)
    >>> Network(net.weights, net.biases, ["tanh"])
    Network(1 -> 2 tanh -> 1)
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activations: tuple[Activation, ...] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        weights = tuple(frozen(w) for w in self.weights)
        biases = tuple(frozen(b) for b in self.biases)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "biases", biases)
        if not weights or len(weights) != len(biases):
            raise ModelConfigurationError(
                "Expected one bias vector for each of at least one weight matrix, got "
                f"{len(weights)} matrices and {len(biases)} vectors."
            )
        for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
            if w.ndim != 2 or min(w.shape) < 1:
                raise ModelConfigurationError(
                    f"Expected a non-empty matrix of weights, got shape {w.shape} "
                    f"at layer {k}."
                )
            if b.shape != (w.shape[0],):
                raise ModelConfigurationError(
                    f"Expected a bias of shape ({w.shape[0]},), got {b.shape} "
                    f"at layer {k}."
                )
            if k and w.shape[1] != weights[k - 1].shape[0]:
                raise ModelConfigurationError(
                    f"Expected {weights[k - 1].shape[0]} columns to follow layer "
                    f"{k - 1}, got {w.shape[1]} at layer {k}."
                )
            if not (np.isfinite(w).all() and np.isfinite(b).all()):
                raise ModelConfigurationError(
                    f"Expected finite weights, got NaN or infinity at layer {k}. "
                    "Train the network again; such a network predicts nothing."
                )
        self._set_activations()

    def _set_activations(self) -> None:
        """Check the activations, and turn names into objects."""
        given = self.activations
        widths = self.hidden_widths
        if given is None:
            given = (RELU,) * len(widths)
        found = tuple(
            activation_named(a) if isinstance(a, str) else a
            for a in ((given,) if isinstance(given, str) else given)
        )
        if len(found) != len(widths):
            raise ModelConfigurationError(
                f"Expected one activation for each of {len(widths)} hidden layers, got "
                f"{len(found)}."
            )
        for k, (kind, width) in enumerate(zip(found, widths, strict=True)):
            if not isinstance(kind, Activation):
                raise TypeError(
                    f"Expected an activation or its name, got {type(kind).__name__} "
                    f"at layer {k}."
                )
            if isinstance(kind, Mixed) and kind.width != width:
                raise ModelConfigurationError(
                    f"Expected activations of {width} neurons, got {kind.width} at "
                    f"layer {k}."
                )
        object.__setattr__(self, "activations", found)

    @property
    def is_relu(self) -> bool:
        """Whether all hidden neurons are ReLU."""
        return all(kind == RELU for kind in self.activations)

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return int(self.weights[0].shape[1])

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return int(self.weights[-1].shape[0])

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Number of neurons of each hidden layer, inputs to outputs."""
        return tuple(int(w.shape[0]) for w in self.weights[:-1])

    @property
    def num_neurons(self) -> int:
        """Number of hidden neurons."""
        return sum(self.hidden_widths)

    @property
    def num_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(w.size + b.size for w, b in self.layers())

    def layers(self) -> Iterable[tuple[Array, Array]]:
        """Pairs (weights, bias), inputs to outputs."""
        return zip(self.weights, self.biases, strict=True)

    def preactivations(self, x: npt.ArrayLike) -> list[Array]:
        """Values before the activation of every affine layer, the output layer last.

        Parameters
        ----------
        x
            One point (num_inputs,) or many (num_points, num_inputs).

        Returns
        -------
        list
            One array per affine layer, (..., width of that layer).
        """
        y = np.asarray(x, dtype=np.float64)
        if y.ndim == 0 or y.shape[-1] != self.num_inputs:
            raise ValueError(
                f"Expected {self.num_inputs} inputs in the last axis of x, "
                f"got shape {y.shape}."
            )
        values = [y @ self.weights[0].T + self.biases[0]]
        for kind, w, b in zip(
            self.activations, self.weights[1:], self.biases[1:], strict=True
        ):
            values.append(kind.value(values[-1]) @ w.T + b)
        return values

    def __call__(self, x: npt.ArrayLike) -> Array:
        """Predictions of shape (..., num_outputs)."""
        return self.preactivations(x)[-1]

    def absolute(self, reach: Array) -> list[Array]:
        """Bounds of ``|W| |y| + |b|`` of every affine layer where ``|x| <= reach``.

        By absolute values alone, without rounding: sizes, not proofs.
        """
        sizes = [np.abs(self.weights[0]) @ reach + np.abs(self.biases[0])]
        for kind, w, b in zip(
            self.activations, self.weights[1:], self.biases[1:], strict=True
        ):
            most = kind.reach(-sizes[-1], sizes[-1])
            sizes.append(np.abs(w) @ most + np.abs(b))
        return sizes

    def gradient(self, x: npt.ArrayLike) -> Array:
        """Jacobian (..., num_outputs, num_inputs); at a kink, that of the off side."""
        hidden = self.preactivations(x)[:-1]
        lead = np.asarray(x).shape[:-1]
        jacobian = np.broadcast_to(self.weights[-1], (*lead, *self.weights[-1].shape))
        layers = list(zip(self.activations, hidden, self.weights[:-1], strict=True))
        for kind, h, w in reversed(layers):
            jacobian = (jacobian * kind.slope(h)[..., None, :]) @ w
        return np.array(jacobian)

    def fold_input(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Network:
        """The network that takes `u` where this one takes ``scale * u + shift``."""
        scale, shift = np.asarray(scale, float), np.asarray(shift, float)
        first, bias = self.weights[0], self.biases[0]
        moved = bias + first @ np.broadcast_to(shift, (self.num_inputs,))
        return replace(
            self, weights=(first * scale, *self.weights[1:]),
            biases=(moved, *self.biases[1:]),
        )  # fmt: skip

    def fold_output(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Network:
        """The network whose predictions are ``scale * prediction + shift``."""
        scale = np.broadcast_to(np.asarray(scale, float), (self.num_outputs,))
        last, bias = self.weights[-1], self.biases[-1]
        return self.with_output(
            last * scale[:, None], bias * scale + np.asarray(shift, float)
        )

    def combine_outputs(self, coefficients: npt.ArrayLike) -> Network:
        """Replace the outputs by ``coefficients @ outputs``.

        Parameters
        ----------
        coefficients
            (num_new_outputs, num_outputs)
        """
        matrix = np.atleast_2d(np.asarray(coefficients, float))
        return self.with_output(matrix @ self.weights[-1], matrix @ self.biases[-1])

    def with_output(self, weights: Array, biases: Array) -> Network:
        """The same hidden layers with another output over them."""
        return replace(
            self, weights=(*self.weights[:-1], weights),
            biases=(*self.biases[:-1], biases),
        )  # fmt: skip

    def after(self, matrix: npt.ArrayLike, shift: npt.ArrayLike) -> Network:
        """The network that takes `u` where this one takes ``matrix @ u + shift``.

        Parameters
        ----------
        matrix
            (num_inputs, num_new_inputs)
        shift
            (num_inputs,)
        """
        first, bias = self.weights[0], self.biases[0]
        moved = bias + first @ np.asarray(shift, float)
        product = first @ np.asarray(matrix, float)
        return replace(
            self, weights=(product, *self.weights[1:]), biases=(moved, *self.biases[1:])
        )

    def spread_inputs(self, positions: Sequence[int], num_inputs: int) -> Network:
        """The same network on a longer input of which it reads `positions`.

        A position may repeat; what is read twice counts twice.
        """
        wide = np.zeros((self.weights[0].shape[0], num_inputs))
        for column, position in enumerate(positions):
            wide[:, position] += self.weights[0][:, column]
        return replace(self, weights=(wide, *self.weights[1:]))

    def __repr__(self) -> str:
        hidden = [
            str(width) if kind == RELU else f"{width} {kind.name}"
            for width, kind in zip(self.hidden_widths, self.activations, strict=True)
        ]
        shape = (str(self.num_inputs), *hidden, str(self.num_outputs))
        return f"Network({' -> '.join(shape)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ensemble:
    """Weighted sum of networks: ``sum_i weights[i] * members[i](x)``.

    Parameters
    ----------
    members
        Networks with the same inputs and outputs; depths and widths may differ.
    weights
        Factor of each member, (num_members,). Used as they are, not normalised;
        ``None`` is the mean, ``1 / num_members`` each.
    input_names
        Name of each input, ``None`` for ``x0, x1, ...``.
    lower, upper
        Box the model was made for, (num_inputs,), if known: the default domain.
    columns
        The columns of the user's table that the inputs stand for: numbers, maybe
        changed, and categories. ``None`` if every input is a column of numbers.
    target
        What the outputs mean, if they are not predictions themselves: the scores of
        classes, or a target that was transformed.
    target_range
        The smallest and the largest target that it was trained on, if known: what an
        answer is compared with.
    source
        What it was converted from.
    deviation
        Largest distance from the original model's own predictions on random
        points, if there was an original to compare with.

    Examples
    --------
    >>> slope = Network([[[2.0]]], [[1.0]])
    >>> Ensemble([slope, slope])([3.0]).tolist()
    [7.0]
    """

    members: tuple[Network, ...]
    weights: Array = None  # type: ignore[assignment]
    input_names: tuple[str, ...] = None  # type: ignore[assignment]
    lower: Array | None = None
    upper: Array | None = None
    columns: tuple[Column, ...] | None = None
    target: Target | None = None
    target_range: tuple[float, float] | None = None
    source: str = ""
    deviation: float | None = None

    def __post_init__(self) -> None:
        members = tuple(self.members)
        object.__setattr__(self, "members", members)
        if not members:
            raise ModelConfigurationError(
                "Expected at least one member, got none. An ensemble needs a network."
            )
        for i, member in enumerate(members):
            if not isinstance(member, Network):
                raise TypeError(
                    f"Expected a Network, got {type(member).__name__} at member "
                    f"{i + 1}. "
                    "Use ennopt.load to convert a model."
                )
            for what in ("num_inputs", "num_outputs"):
                if getattr(member, what) != getattr(members[0], what):
                    raise ModelConfigurationError(
                        f"Expected {what} {getattr(members[0], what)} as in member 1, "
                        f"got {getattr(member, what)} at member {i + 1}."
                    )
        e, d = len(members), members[0].num_inputs
        weights = frozen(np.full(e, 1.0 / e) if self.weights is None else self.weights)
        if weights.shape != (e,) or not np.isfinite(weights).all():
            raise ModelConfigurationError(
                f"Expected {e} finite member weights, got {weights!r:.80}."
            )
        object.__setattr__(self, "weights", weights)
        names = self.input_names
        names = tuple(f"x{j}" for j in range(d)) if names is None else tuple(names)
        names = tuple(str(name) for name in names)
        if len(names) != d or len(set(names)) != d:
            raise ModelConfigurationError(
                f"Expected {d} different input names, got {list(names)!r:.200}."
            )
        object.__setattr__(self, "input_names", names)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
            try:
                check_columns(self.columns, d)
            except ValueError as error:
                raise ModelConfigurationError(str(error)) from error
        if (self.lower is None) != (self.upper is None):
            raise ModelConfigurationError(
                "Expected both lower and upper or neither, got one of them."
            )
        for name in ("lower", "upper"):
            if getattr(self, name) is not None:
                side = frozen(getattr(self, name))
                if side.shape != (d,):
                    raise ModelConfigurationError(
                        f"Expected {name} of shape ({d},), got {side.shape}."
                    )
                object.__setattr__(self, name, side)
        self._set_target_range()

    def _set_target_range(self) -> None:
        """Check what it was trained on, and make it a pair of numbers."""
        if self.target_range is None:
            return
        ends = frozen(self.target_range)
        if ends.shape != (2,) or not np.isfinite(ends).all() or ends[0] > ends[1]:
            raise ModelConfigurationError(
                "Expected a target_range of two finite numbers, the smallest target "
                f"first, got {self.target_range!r:.80}."
            )
        if self.num_outputs != 1:
            raise ModelConfigurationError(
                "Expected a target_range with one output, got it with "
                f"{self.num_outputs}."
            )
        object.__setattr__(self, "target_range", tuple(ends.tolist()))

    @property
    def num_members(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return self.members[0].num_inputs

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self.members[0].num_outputs

    @property
    def num_neurons(self) -> int:
        """Number of hidden neurons of all members."""
        return sum(member.num_neurons for member in self.members)

    def told(self, x: Array) -> dict[str, Any]:
        """A point (num_inputs,) in the columns, units and categories of the user.

        Examples
        --------
        >>> from ennopt.columns import Group, Number
        >>> model = Ensemble(
        ...     [Network([[[1.0, 2.0, 3.0]]], [[0.0]])],
        ...     columns=[Number("age", 0), Group("grade", (1, 2), ("A", "B"))],
        ... )
        >>> model.told(np.array([28.0, 0.0, 1.0]))
        {'age': 28.0, 'grade': 'B'}
        """
        if self.columns is None:
            return dict(zip(self.input_names, x.tolist(), strict=True))
        return {column.name: column.told(x) for column in self.columns}

    def member_values(self, x: npt.ArrayLike) -> Array:
        """Predictions of each member alone, (num_members, ..., num_outputs)."""
        return np.stack([member(x) for member in self.members])

    def __call__(self, x: npt.ArrayLike) -> Array:
        """Predictions of shape (..., num_outputs)."""
        return np.tensordot(self.weights, self.member_values(x), axes=1)

    def gradient(self, x: npt.ArrayLike) -> Array:
        """Jacobian (..., num_outputs, num_inputs); at a kink, that of the off side."""
        return np.tensordot(
            self.weights, np.stack([m.gradient(x) for m in self.members]), axes=1
        )

    def with_members(self, members: Iterable[Network]) -> Ensemble:
        """The same ensemble with other members.

        The range of the target is dropped: they may predict something else.
        """
        return replace(self, members=tuple(members), target_range=None)

    def fold_input(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Ensemble:
        """The ensemble that takes `u` where this one takes ``scale * u + shift``.

        The recorded box and columns are dropped: they were in the other units.
        """
        folded = tuple(m.fold_input(scale, shift) for m in self.members)
        return replace(self, members=folded, lower=None, upper=None, columns=None)

    def fold_output(self, scale: npt.ArrayLike, shift: npt.ArrayLike) -> Ensemble:
        """The ensemble whose predictions are ``scale * prediction + shift``.

        Each member is moved alike, so that it stays a prediction in the new units.
        """
        total = float(self.weights.sum())
        shift = np.broadcast_to(np.asarray(shift, float), (self.num_outputs,))
        if abs(total) > 1e-9:
            return self.with_members(
                m.fold_output(scale, shift / total) for m in self.members
            )
        scaled = [m.fold_output(scale, 0.0) for m in self.members]
        heavy = int(np.argmax(np.abs(self.weights)))
        if self.weights[heavy] == 0.0:
            if shift.any():
                raise ModelConfigurationError(
                    "Expected a member of nonzero weight to carry a constant, got "
                    "member weights that are all zero."
                )
            return self.with_members(scaled)
        scaled[heavy] = scaled[heavy].fold_output(1.0, shift / self.weights[heavy])
        return self.with_members(scaled)

    def combine_outputs(self, coefficients: npt.ArrayLike) -> Ensemble:
        """Replace the outputs by ``coefficients @ outputs``."""
        return self.with_members(m.combine_outputs(coefficients) for m in self.members)

    def on_box(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Ensemble:
        """The same ensemble with another box recorded."""
        return replace(self, lower=frozen(lower), upper=frozen(upper))

    def negated(self) -> Ensemble:
        """The ensemble that predicts the opposite."""
        return self.with_members(m.fold_output(-1.0, 0.0) for m in self.members)

    def save(self, path: str | Path) -> None:
        """Write the ensemble to an ``.npz`` file that `ennopt.load` reads back exactly.

        What the file holds is said in `ennopt.npz`.
        """
        from ennopt.npz import write

        write(self, Path(path))

    def __repr__(self) -> str:
        shapes: dict[str, int] = {}
        for member in self.members:
            shapes[repr(member)] = shapes.get(repr(member), 0) + 1
        text = ", ".join(f"{n} x {shape}" for shape, n in shapes.items())
        if np.ptp(self.weights) > 0 or not math.isclose(self.weights.sum(), 1.0):
            text += (
                f", weights={np.array2string(self.weights, precision=4, threshold=10)}"
            )
        if self.source:
            text += f", from {shown(self.source)}"
        if self.deviation is not None:
            text += f", deviation {self.deviation:.1e}"
        return f"Ensemble({text})"


def read_npz(path: str | Path) -> Ensemble:
    """Read an ensemble from an ``.npz`` file. Never unpickles.

    Raises
    ------
    ModelConfigurationError
        When the file is damaged or is not an ensemble.
    """
    from ennopt.npz import read

    return read(Path(path))
