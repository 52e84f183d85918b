"""The refusal that every converter shares."""

from __future__ import annotations

from collections.abc import Iterable


class PredictorNotSupportedError(TypeError):
    """The model, or a part of it, is not something ennopt can convert.

    The message names the layer or operator refused and lists what is accepted.
    """


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
        What the user can do about it.

    Examples
    --------
    >>> print(refuse("a layer", "Conv2d", ["Linear", "ReLU"], where="'stem'"))
    Expected a layer among Linear, ReLU, got Conv2d at 'stem'.
    """
    text = f"Expected {kind} among {', '.join(accepted)}, got {got}"
    text += f" at {where}." if where else "."
    return PredictorNotSupportedError(f"{text} {remedy}".rstrip())
