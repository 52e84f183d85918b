"""Classifiers: which class is meant, and what of it is optimized.

| outputs | optimized | probability |
|---|---|---|
| a sigmoid, or a softmax of two classes | the log-odds of the class | follows exactly |
| a softmax of more classes | the log-odds against the likeliest other | is bounded |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from ennopt.activations import RELU, Sigmoid
from ennopt.convert import graph
from ennopt.convert.affine import Room, Source, Tensor, Value, as_value
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.lower import to_ensemble
from ennopt.convert.verify import Loaded, Original
from ennopt.network import Array, Ensemble, Network
from ennopt.targets import Classes, Odds


@dataclass(frozen=True, eq=False)
class Scores:
    """A tensor behind a sigmoid or a softmax, known by what went into it.

    As the last step of a model it scores classes, and `value` is what is optimized. A
    sigmoid that a further step reads is a hidden layer like others.
    """

    value: Tensor
    kind: str

    @cached_property
    def neurons(self) -> Value:
        """The sigmoid as a hidden layer, the same for every step that reads it."""
        return graph.activate(self.value, Sigmoid())

    def classes(self) -> Classes:
        """What the outputs of a model mean that ends here."""
        count = int(np.prod(as_value(self.value).shape))
        binary = self.kind == "sigmoid" and count == 1
        return Classes(self.kind, tuple(range(2 if binary else count)))


def softmax(value: Tensor, axis: int) -> Scores:
    """A softmax over the last axis of one point."""
    shape = as_value(value).shape
    if not shape or axis % len(shape) != len(shape) - 1 or shape[-1] < 2:
        raise refuse("a softmax", f"axis {axis} of shape {shape}", ("the last axis",))
    return Scores(value, "softmax")


def to_scores(output: Tensor | Scores, source: Source, room: Room) -> Ensemble:
    """The ensemble of a traced graph, which may end in a sigmoid or a softmax."""
    if not isinstance(output, Scores):
        return to_ensemble(output, source, room)
    ensemble = to_ensemble(output.value, source, room)
    return replace(ensemble, target=output.classes())


def is_sigmoid(tensor: Any) -> TypeGuard[Scores]:
    """Whether a tensor is a sigmoid, one of each element whatever their shape is."""
    return isinstance(tensor, Scores) and tensor.kind == "sigmoid"


def read_by(name: str, arguments: Any) -> Any:
    """What a step reads: a sigmoid is a hidden layer to it, a softmax is refused.

    Parameters
    ----------
    name
        Of the step.
    arguments
        A tensor, `Scores`, or lists and dictionaries of them.
    """
    if isinstance(arguments, dict):
        return {key: read_by(name, entry) for key, entry in arguments.items()}
    if isinstance(arguments, list | tuple):
        return type(arguments)(read_by(name, entry) for entry in arguments)
    if not isinstance(arguments, Scores):
        return arguments
    if is_sigmoid(arguments):
        return arguments.neurons
    raise PredictorNotSupportedError(
        f"Expected a {arguments.kind} as the last step, got {name} after it. Means "
        "and products of probabilities are no function of one score: leave "
        "these steps out and optimize what goes into them."
    )


def choose_class(loaded: Loaded, output: Any) -> tuple[Loaded, Any]:
    """The log-odds of the class that a user means, for a model that gives classes.

    Parameters
    ----------
    loaded
        Any model; others than classifiers are returned as they are.
    output
        Number of a class from 0 on, or its name. ``None`` means the second of two.

    Returns
    -------
    tuple
        The model of the class, and what is left of `output`.
    """
    ensemble, original = loaded
    classes = ensemble.target
    if not isinstance(classes, Classes):
        return loaded, output
    place = _place(classes, output)
    if classes.kind == "softmax":
        rivals, odds = len(classes.names) - 1, _margin(ensemble, place)
    elif ensemble.num_outputs == 1:
        rivals, odds = 1, ensemble if place else ensemble.negated()
    else:
        unit = np.eye(ensemble.num_outputs)[[place]]
        rivals, odds = 1, ensemble.combine_outputs(unit)

    def of_class(probabilities: Array) -> Array:
        """The column of the class; a sigmoid of one output has one for two."""
        if classes.kind == "sigmoid" and ensemble.num_outputs == 1:
            return probabilities[:, 0] if place else 1.0 - probabilities[:, 0]
        return probabilities[:, place]

    def probability(x: Array) -> Array:
        return of_class(classes.probabilities(ensemble(np.atleast_2d(x))))

    target = Odds(classes.names[place], rivals, probability)
    odds = replace(odds, target=target)
    if original is None:
        return Loaded(odds), None
    asked = original.predict

    def theirs(x: Array) -> Array:
        shape = (len(x), ensemble.num_outputs)
        return of_class(np.asarray(asked(x), dtype=np.float64).reshape(shape))

    return Loaded(odds, Original(theirs, original.precision)), None


def _place(classes: Classes, output: Any) -> int:
    """Number of the class that a user means."""
    names = classes.names
    if output is None and len(names) == 2:
        return 1
    told = ", ".join(repr(name) for name in names[:20])
    if isinstance(output, str):
        found = [k for k, name in enumerate(names) if str(name) == output]
        if found:
            return found[0]
    elif isinstance(output, int | np.integer) and 0 <= int(output) < len(names):
        return int(output)
    raise ValueError(
        f"Expected the class to optimize, got output={output!r:.60}. Pass the name of "
        f"one of {told}, or its number from 0 on."
    )


def _margin(ensemble: Ensemble, place: int) -> Ensemble:
    """The score of a class less the largest score of the others."""
    count = ensemble.num_outputs
    others = [k for k in range(count) if k != place]
    differences = np.eye(count)[others]
    differences[:, place] -= 1.0  # what each other class is ahead
    if count == 2:
        return ensemble.combine_outputs(-differences)
    if ensemble.num_members > 1:
        raise PredictorNotSupportedError(
            f"Expected one network behind a softmax of {count} classes, got "
            f"{ensemble.num_members} whose scores are averaged. Two classes would do."
        )
    weight = float(ensemble.weights[0])
    (member,) = ensemble.members
    ahead = member.combine_outputs(weight * differences)
    return replace(ensemble, members=(_negative_maximum(ahead),), weights=np.ones(1))


def _negative_maximum(network: Network) -> Network:
    """Minus the largest output, with ``max(a, b) = relu(a - b) + relu(b) - relu(-b)``.

    The outputs are compared in pairs, those that won again, until one is left.
    """
    weights, biases = list(network.weights), list(network.biases)
    kinds = list(network.activations)
    while (count := len(biases[-1])) > 1:
        pairs = count // 2
        left, right = np.eye(count)[: 2 * pairs : 2], np.eye(count)[1::2]
        kept = np.vstack([right, np.eye(count)[2 * pairs :]])
        neurons = np.vstack([left - right, kept, -kept])
        reading = np.hstack(
            [np.eye(len(kept), pairs), np.eye(len(kept)), -np.eye(len(kept))]
        )
        weights[-1], biases[-1] = neurons @ weights[-1], neurons @ biases[-1]
        weights.append(reading)
        biases.append(np.zeros(len(kept)))
        kinds.append(RELU)
    largest = Network(tuple(weights), tuple(biases), tuple(kinds))
    return largest.fold_output(-1.0, 0.0)
