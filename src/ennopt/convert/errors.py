"""The refusal that every converter shares."""

from __future__ import annotations

from collections.abc import Iterable

from ennopt.network import shown


class PredictorNotSupportedError(TypeError):
    """The model, or a part of it, is not something ennopt can convert.

    The message names the layer or operator refused and lists what is accepted.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


_LAST = {"softmax", "logsoftmax", "log_softmax", "hardsigmoid"}
_SMOOTH = {
    "celu", "exp", "hardswish", "log", "log_sigmoid", "logsigmoid", "mish", "selu",
    "softsign",
}  # fmt: skip


def _usual_remedy(got: str) -> str:
    """What to do about the activations that are met most often."""
    if got.lower() in _LAST:
        return "If it is the last step, leave it out and optimize what goes into it."
    if got.lower() in _SMOOTH:
        return "Train the network with ReLU in its place."
    return ""


def refuse(
    kind: str, got: str, accepted: Iterable[str], *, where: str = "", remedy: str = ""
) -> PredictorNotSupportedError:
    """The error that names what was met and what would have been accepted.

    Parameters
    ----------
    kind
        What the refused thing is: ``"a layer"``, ``"an operator"``, ...
    got
        Name of the thing refused.
    accepted
        Names of what is accepted.
    where
        Place in the model, if it has one.
    remedy
        What the user can do about it; there is a usual one for activations.

    Examples
    --------
    >>> print(refuse("a layer", "Conv2d", ["Linear", "ReLU"], where="'stem'"))
    Expected a layer among Linear, ReLU, got Conv2d at 'stem'.
    >>> print(refuse("an activation", "mish", ["relu"]))
    Expected an activation among relu, got mish. Train the network with ReLU in its
    place.
    """
    text = f"Expected {kind} among {', '.join(accepted)}, got {got}"
    text += f" at {where}." if where else "."
    return PredictorNotSupportedError(f"{text} {remedy or _usual_remedy(got)}".rstrip())
