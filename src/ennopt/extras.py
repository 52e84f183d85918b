"""Optional packages: imported when first needed, refused with the line to install."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any


class MissingExtraError(ImportError):
    """A package that only an extra of ennopt installs is not there."""


def require(module: str, extra: str) -> Any:
    """Import `module`, or say which extra of ennopt brings it.

    Parameters
    ----------
    module
        Importable name, for example ``"onnx"`` or ``"sklearn.pipeline"``.
    extra
        Name of the extra that installs it.

    Raises
    ------
    MissingExtraError
        When the package is not installed. A package that is installed but broken
        raises its own error, which says more.

    Examples
    --------
    >>> require("math", "sklearn").sqrt(4.0)
    2.0
    >>> require("no_such_package", "onnx")
    Traceback (most recent call last):
        ...
    ennopt.extras.MissingExtraError: Expected the package no_such_package to be
    installed, got none. Run: pip install "ennopt[onnx]"
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(
            f"Expected the package {package} to be installed, got none. "
            f'Run: pip install "ennopt[{extra}]"',
            name=package,
        ) from error


def require_all(needs: Mapping[str, str]) -> None:
    """Refuse to begin work that needs packages which are not installed.

    Parameters
    ----------
    needs
        The extra of ennopt that installs each package, by importable name.

    Examples
    --------
    >>> require_all({"math": "plot", "no_such_package": "dask", "nor_this": "scip"})
    Traceback (most recent call last):
        ...
    ennopt.extras.MissingExtraError: Expected the packages no_such_package, nor_this to
    be installed, got none. Run: pip install "ennopt[dask,scip]"
    """
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        extras = ",".join(sorted({needs[name] for name in missing}))
        raise MissingExtraError(
            f"Expected the package{'s' * (len(missing) > 1)} {', '.join(missing)} to "
            f'be installed, got none. Run: pip install "ennopt[{extras}]"',
            name=missing[0],
        )
