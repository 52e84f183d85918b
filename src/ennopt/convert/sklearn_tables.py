"""What scikit-learn transformers do to a table, as affine functions of inputs.

A `Table` says of each feature, at some place of a pipeline, which column of the user's
data it is, untouched, or else which affine function of the inputs. Inputs are made when
a column is first read as something: as a number, as a number changed by a monotone
function, or as a category. `Inputs` collects them for the whole model, since several
members may read the same column.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.columns import CHANGES, Column, Group, Level, Number, Ordinal
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.extras import require
from ennopt.network import Array, ModelConfigurationError

SCALERS = (
    "StandardScaler",
    "MinMaxScaler (clip=False)",
    "MaxAbsScaler (clip=False)",
    "RobustScaler",
    "FunctionTransformer (func=None)",
    "passthrough",
)
TRANSFORMERS = (
    *SCALERS[:-2],
    "FunctionTransformer (None, log, log1p, log2, log10, exp, sqrt)",
    "OneHotEncoder",
    "OrdinalEncoder",
    "TargetEncoder",
    "SimpleImputer",
    "KNNImputer",
    "PCA",
    "TruncatedSVD",
    "feature selection (SelectKBest, SelectFromModel, VarianceThreshold, ...)",
    "ColumnTransformer",
    "FeatureUnion",
    "Pipeline",
    "passthrough",
)


def class_of(module: str, name: str) -> Any:
    """A class of scikit-learn."""
    return getattr(require(f"sklearn.{module}", "sklearn"), name)


def check_fitted(model: Any, where: str) -> None:
    """Refuse classes, and estimators before `fit`. Raises TypeError for others."""
    if isinstance(model, type):
        raise PredictorNotSupportedError(
            f"Expected a fitted model, got the class {model.__name__}. "
            "Make an instance and call fit."
        )
    exceptions = require("sklearn.exceptions", "sklearn")
    validation = require("sklearn.utils.validation", "sklearn")
    try:
        validation.check_is_fitted(model)
    except exceptions.NotFittedError as error:
        raise ModelConfigurationError(
            f"Expected a fitted model, got one that is not at {where}. Call fit first."
        ) from error


def check_own(model: Any, method: str, where: str) -> None:
    """Refuse a subclass that computes in its own way: only its layers are read."""
    for name in (method, "inverse_transform"):
        found = getattr(type(model), name, None)
        if found is not None and found.__module__.partition(".")[0] != "sklearn":
            raise PredictorNotSupportedError(
                f"Expected the {name} of scikit-learn, got one of "
                f"{type(model).__name__}'s own at {where}. Convert the scikit-learn "
                "model it is made from."
            )


def passes_through(step: Any) -> bool:
    """Whether a step of a pipeline is none."""
    return step is None or (isinstance(step, str) and step == "passthrough")


class Inputs:
    """The inputs of a model that is being converted, made as its columns are read.

    Parameters
    ----------
    names
        Of the columns of the user's table.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.size = 0
        self.columns: dict[int, Column] = {}  # by number of the user's column
        self.units: dict[int, tuple[float, float]] = {}  # center and spread, if seen
        self.by_name = False  # whether a transformer takes columns by their names

    def number(self, place: int, change: str | None, where: str) -> int:
        """The input of a column of numbers."""
        found = Number(self.names[place], self.size, change)
        return self._made(place, found, where).inputs[0]

    def group(
        self,
        place: int,
        levels: tuple[Level, ...],
        base: Level | None,
        alike: tuple[tuple[Level, Level], ...],
        where: str,
    ) -> tuple[int, ...]:
        """The inputs of a category, one for each of `levels`."""
        inputs = tuple(range(self.size, self.size + len(levels)))
        found = Group(self.names[place], inputs, levels, base, alike)
        return self._made(place, found, where).inputs

    def ordinal(
        self,
        place: int,
        levels: tuple[Level, ...],
        alike: tuple[tuple[Level, Level], ...],
        where: str,
    ) -> int:
        """The input of a category that is read as a number."""
        found = Ordinal(self.names[place], self.size, levels, alike)
        return self._made(place, found, where).inputs[0]

    def _made(self, place: int, new: Column, where: str) -> Column:
        old = self.columns.get(place)
        if old is None:
            self.columns[place] = new
            self.size += len(new.inputs)
            return new
        same: Any = (
            replace(new, inputs=old.inputs)
            if isinstance(new, Group)
            else replace(new, input=old.inputs[0])
        )
        if same != old:
            raise PredictorNotSupportedError(
                f"Expected each column to be read in one way, got {new.name} as "
                f"{_kind(old)} and as {_kind(new)} at {where}. Leave one of them out."
            )
        return old

    def order(self) -> list[int]:
        """The numbers of the inputs, in the order of the user's columns."""
        return [j for place in sorted(self.columns) for j in self.columns[place].inputs]

    def ordered(self) -> tuple[Column, ...]:
        """The columns with their inputs numbered as `order` sorts them."""
        found: list[Column] = []
        start = 0
        for place in sorted(self.columns):
            column = self.columns[place]
            if isinstance(column, Group):
                inputs = tuple(range(start, start + len(column.inputs)))
                found.append(replace(column, inputs=inputs))
            else:
                found.append(replace(column, input=start))
            start += len(column.inputs)
        return tuple(found)

    @property
    def is_plain(self) -> bool:
        """Whether every column of the user is a number, as it is, and read."""
        return len(self.columns) == len(self.names) and all(
            column.is_plain for column in self.columns.values()
        )


def _kind(column: Column) -> str:
    if isinstance(column, Number):
        return "a number" if column.change is None else f"its {column.change}"
    return "a number for each level" if isinstance(column, Ordinal) else "a category"


@dataclass(frozen=True, eq=False)
class Table:
    """The features at some place of a pipeline.

    Parameters
    ----------
    inputs
        Of the whole model.
    raw
        For each feature the number of the user's column that it is, untouched;
        ``None`` if it is an affine function of inputs.
    matrix, shift
        These functions, (num_features, number of inputs when it was made) and
        (num_features,); zero for untouched columns.
    """

    inputs: Inputs
    raw: tuple[int | None, ...]
    matrix: Array
    shift: Array

    @classmethod
    def of_columns(cls, inputs: Inputs) -> Table:
        """The table as the user has it."""
        d = len(inputs.names)
        return cls(inputs, tuple(range(d)), np.zeros((d, inputs.size)), np.zeros(d))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.raw)

    def take(self, places: Sequence[int]) -> Table:
        """Some of the features."""
        chosen = [int(j) for j in places]
        raw = tuple(self.raw[j] for j in chosen)
        return replace(self, raw=raw, matrix=self.matrix[chosen],
                       shift=self.shift[chosen])  # fmt: skip

    def as_numbers(self, where: str, change: str | None = None) -> Table:
        """The table with every untouched column read as a number."""
        read = {
            k: self.inputs.number(place, change, where)
            for k, place in enumerate(self.raw)
            if place is not None
        }
        matrix = padded(self.matrix, self.inputs.size)
        for k, j in read.items():
            matrix[k, j] = 1.0
        return Table(self.inputs, (None,) * self.width, matrix, self.shift)

    def mapped(self, matrix: Array, shift: Array) -> Table:
        """The table of ``matrix @ features + shift``, for features that are numbers."""
        return Table(
            self.inputs, (None,) * len(matrix), matrix @ self.matrix,
            matrix @ self.shift + shift,
        )  # fmt: skip

    def scaled(self, factor: Array, shift: Array) -> Table:
        """The table of ``factor * features + shift``, for features that are numbers."""
        factor = np.broadcast_to(factor, (self.width,))
        shift = np.broadcast_to(shift, (self.width,))
        for k in range(self.width):  # remember the units of the inputs
            (used,) = np.nonzero(self.matrix[k])
            if factor[k] == 0 or used.size != 1 or self.shift[k] != 0:
                continue
            if self.matrix[k, used[0]] == 1:
                units = -shift[k] / factor[k], 1.0 / abs(factor[k])
                self.inputs.units.setdefault(int(used[0]), units)
        return replace(
            self, matrix=self.matrix * factor[:, None],
            shift=self.shift * factor + shift,
        )  # fmt: skip


def padded(matrix: Array, width: int) -> Array:
    """A copy with columns of zeros behind, for inputs that were made later."""
    wide = np.zeros((len(matrix), width))
    wide[:, : matrix.shape[1]] = matrix
    return wide


def joined(inputs: Inputs, tables: Sequence[Table]) -> Table:
    """The features of several tables, side by side."""
    matrices = [padded(table.matrix, inputs.size) for table in tables]
    return Table(
        inputs,
        tuple(place for table in tables for place in table.raw),
        np.concatenate([np.zeros((0, inputs.size)), *matrices]),
        np.concatenate([np.zeros(0), *(table.shift for table in tables)]),
    )


def transformed(step: Any, table: Table, where: str) -> Table:
    """The table after a fitted transformer; `where` is its place in the model."""
    if passes_through(step):
        return table
    for read, kinds in _READERS:
        if any(isinstance(step, class_of(module, name)) for module, name in kinds):
            if not isinstance(step, class_of("preprocessing", "FunctionTransformer")):
                check_fitted(step, where)
                check_own(step, "transform", where)
            return read(step, table, where)
    return table.as_numbers(where).scaled(*scaling(step, where, TRANSFORMERS))


def _pipeline(step: Any, table: Table, where: str) -> Table:
    for name, inner in step.steps:
        table = transformed(inner, table, f"{where}.{name}")
    return table


def _column_transformer(step: Any, table: Table, where: str) -> Table:
    if hasattr(step, "feature_names_in_"):
        table.inputs.by_name = True
    parts = []
    for name, inner, columns in step.transformers_:
        places = _places(columns, step, table.width, f"{where}.{name}")
        if isinstance(inner, str) and inner == "drop":
            continue
        chosen = table.take(places)
        weight = (step.transformer_weights or {}).get(name)
        if places:
            part = transformed(inner, chosen, f"{where}.{name}")
            parts.append(_weighted(part, weight, where))
    return joined(table.inputs, parts)


def _weighted(table: Table, weight: float | None, where: str) -> Table:
    if weight is None or weight == 1:
        return table
    return table.as_numbers(where).scaled(np.full(1, float(weight)), np.zeros(1))


def _places(columns: Any, step: Any, width: int, where: str) -> list[int]:
    """Numbers of the features that a part of a ColumnTransformer takes."""
    names = [str(name) for name in getattr(step, "feature_names_in_", ())]

    def place(column: Any) -> int:
        return names.index(column) if isinstance(column, str) else int(column) % width

    if isinstance(columns, slice):
        start, stop = columns.start, columns.stop
        if isinstance(start, str) or isinstance(stop, str):  # labels: both ends count
            first = 0 if start is None else place(start)
            last = width if stop is None else place(stop) + 1
            return list(range(first, last))[:: columns.step or 1]
        return list(range(width))[columns]
    if isinstance(columns, str | int):
        return [place(columns)]
    listed = list(columns)
    if listed and all(isinstance(c, bool | np.bool_) for c in listed):
        return [j for j, chosen in enumerate(listed) if chosen]
    try:
        return [place(column) for column in listed]
    except (ValueError, TypeError) as error:
        raise ModelConfigurationError(
            f"Expected columns by name or number, got {columns!r:.80} at {where}."
        ) from error


def _union(step: Any, table: Table, where: str) -> Table:
    weights = step.transformer_weights or {}
    parts = [
        _weighted(
            transformed(inner, table, f"{where}.{name}"), weights.get(name), where
        )
        for name, inner in step.transformer_list
        if not (isinstance(inner, str) and inner == "drop")
    ]
    return joined(table.inputs, parts)


def _imputer(step: Any, table: Table, where: str) -> Table:
    """Complete data passes an imputer unchanged, but for columns it drops or adds."""
    missing = step.missing_values
    if missing is not None and missing == missing:
        raise refuse(
            "an imputer of cells that are not there", f"missing_values={missing!r}",
            ("NaN", "None"), where=where,
            remedy="It would replace a value that an input can take.",
        )  # fmt: skip
    own = [f"column {k}" for k in range(table.width)]
    # the names it saw, if any, must be given back to it
    given = [str(n) for n in getattr(step, "feature_names_in_", own)]
    names = [str(name) for name in step.get_feature_names_out(given)]
    kept = [given.index(name) for name in names if name in given]
    table = table.take(kept)
    added = len(names) - len(kept)  # indicators of missing cells: never
    if not added:
        return table
    zeros = np.zeros((added, table.inputs.size))
    blank = Table(table.inputs, (None,) * added, zeros, np.zeros(added))
    return joined(table.inputs, [table, blank])


def _selector(step: Any, table: Table, where: str) -> Table:
    for place in table.raw:  # it takes numbers alone, even of what it leaves out
        if place is not None:
            table.inputs.number(place, None, where)
    return table.take(np.flatnonzero(step.get_support()).tolist())


def _pca(step: Any, table: Table, where: str) -> Table:
    matrix = np.asarray(step.components_, dtype=np.float64)
    mean = getattr(step, "mean_", None)
    center = np.zeros(matrix.shape[1]) if mean is None else vector(mean)
    if getattr(step, "whiten", False):
        spread = np.sqrt(vector(step.explained_variance_))
        least = np.finfo(step.explained_variance_.dtype).eps
        matrix = matrix / np.maximum(spread, least)[:, None]
    return table.as_numbers(where).mapped(matrix, -matrix @ center)


def _function(step: Any, table: Table, where: str) -> Table:
    if step.func is None:
        return table
    names = {getattr(np, name): name for name in CHANGES}
    name = names.get(step.func) if isinstance(step.func, np.ufunc) else None
    if name is None or step.kw_args:
        raise refuse(
            "a FunctionTransformer", f"func={step.func!r}", ("None", *CHANGES),
            where=where,
            remedy="Use one of NumPy's functions of these names, or change the column "
            "before the model sees it.",
        )  # fmt: skip
    if any(place is None for place in table.raw):
        raise refuse(
            "a FunctionTransformer of columns as they are",
            f"{name} of columns that another step changed", ("func=None",), where=where,
            remedy="Put it in front of the other steps.",
        )  # fmt: skip
    return table.as_numbers(where, name)


def _polynomial(step: Any, table: Table, where: str) -> Table:
    raise refuse(
        "a transformer", "PolynomialFeatures", TRANSFORMERS, where=where,
        remedy="Products of inputs are not piecewise linear: leave it out, a network "
        "finds such curves by itself.",
    )  # fmt: skip


def _untouched(step: Any, table: Table, where: str) -> list[int]:
    """The user's columns that an encoder reads."""
    if any(place is None for place in table.raw):
        raise refuse(
            "an encoder of columns as they are",
            f"{type(step).__name__} of columns that another step changed", ("columns",),
            where=where, remedy="Put the encoder in front of the other steps.",
        )  # fmt: skip
    return [place for place in table.raw if place is not None]


def _levels(step: Any, k: int, where: str) -> list[Level]:
    """The categories of the k-th column that are no missing cells."""
    found = [
        level.item() if isinstance(level, np.generic) else level
        for level in step.categories_[k]
    ]
    levels = [level for level in found if level is not None and level == level]
    if not levels or not all(isinstance(level, str | int | float) for level in levels):
        raise refuse(
            "categories", f"{found!r:.60}", ("texts", "numbers", "True and False"),
            where=where,
        )  # fmt: skip
    return levels


def _encoded(step: Any, rows: Any) -> Array:
    """What an encoder makes of rows of categories."""
    with warnings.catch_warnings():
        # rows without column names, to an encoder fitted on a data frame
        warnings.filterwarnings("ignore", message="X does not have valid feature")
        result = step.transform(rows)
    result = result.toarray() if hasattr(result, "toarray") else result
    return np.asarray(result, dtype=np.float64)


def _codes(step: Any, levels: list[list[Level]]) -> tuple[Array, list[Array]]:
    """The code of the first levels, and that of each level of each column.

    The encoder is asked, so that whatever it was told to drop or to put together is
    as it does it.
    """
    first = np.array([column[0] for column in levels], dtype=object)[None]
    codes = []
    for k, column in enumerate(levels):
        rows = np.repeat(first, len(column), axis=0)
        rows[:, k] = column
        codes.append(_encoded(step, rows))
    return _encoded(step, first)[0], codes


def _one_hot(step: Any, table: Table, where: str) -> Table:
    places = _untouched(step, table, where)
    levels = [_levels(step, k, where) for k in range(len(places))]
    base_code, codes = _codes(step, levels)
    shift = base_code.copy()
    blocks: list[tuple[tuple[int, ...], npt.NDArray[np.bool_], Array]] = []
    for k, (place, column, code) in enumerate(zip(places, levels, codes, strict=True)):
        own = (code != base_code).any(axis=0)  # the features that it decides about
        shift[own] = 0.0
        distinct: dict[tuple[float, ...], Level] = {}
        alike = []
        for level, row in zip(column, code[:, own].tolist(), strict=True):
            kept = distinct.setdefault(tuple(row), level)
            if kept is not level:
                alike.append((level, kept))
        zero = (0.0,) * int(own.sum())
        base = distinct.pop(zero) if zero in distinct and len(distinct) > 1 else None
        inputs = table.inputs.group(
            place, tuple(distinct.values()), base, tuple(alike), f"{where}, column {k}"
        )
        blocks.append((inputs, own, np.array(list(distinct)).reshape(len(inputs), -1)))
    matrix = np.zeros((len(shift), table.inputs.size))
    for inputs, own, rows in blocks:
        matrix[np.ix_(own, np.array(inputs))] = rows.T
    return Table(table.inputs, (None,) * len(shift), matrix, shift)


def _ordinal(step: Any, table: Table, where: str) -> Table:
    places = _untouched(step, table, where)
    levels = [_levels(step, k, where) for k in range(len(places))]
    _, codes = _codes(step, levels)
    inputs = []
    for k, (place, column, code) in enumerate(zip(places, levels, codes, strict=True)):
        distinct: dict[int, Level] = {}
        alike = []
        for level, number in zip(column, code[:, k].tolist(), strict=True):
            kept = distinct.setdefault(int(number), level)
            if kept is not level:
                alike.append((level, kept))
        if sorted(distinct) != list(range(len(distinct))):
            raise ModelConfigurationError(
                f"Expected an OrdinalEncoder that counts from 0, got the codes "
                f"{sorted(distinct)!r:.60} at {where}."
            )
        names = tuple(distinct[code] for code in range(len(distinct)))
        inputs.append(
            table.inputs.ordinal(place, names, tuple(alike), f"{where}, column {k}")
        )
    matrix = np.zeros((len(inputs), table.inputs.size))
    matrix[np.arange(len(inputs)), inputs] = 1.0
    return Table(table.inputs, (None,) * len(inputs), matrix, np.zeros(len(inputs)))


Reader = Callable[[Any, Table, str], Table]

_READERS: tuple[tuple[Reader, tuple[tuple[str, str], ...]], ...] = (
    (_pipeline, (("pipeline", "Pipeline"),)),
    (_column_transformer, (("compose", "ColumnTransformer"),)),
    (_union, (("pipeline", "FeatureUnion"),)),
    (_imputer, (("impute", "SimpleImputer"), ("impute", "KNNImputer"))),
    (_selector, (("feature_selection", "SelectorMixin"),)),
    (
        _pca,
        (
            ("decomposition", "PCA"),
            ("decomposition", "IncrementalPCA"),
            ("decomposition", "TruncatedSVD"),
        ),
    ),
    (_function, (("preprocessing", "FunctionTransformer"),)),
    (_polynomial, (("preprocessing", "PolynomialFeatures"),)),
    (
        _one_hot,
        (("preprocessing", "OneHotEncoder"), ("preprocessing", "TargetEncoder")),
    ),
    (_ordinal, (("preprocessing", "OrdinalEncoder"),)),
)


def scaling(
    step: Any, where: str, accepted: Sequence[str] = SCALERS
) -> tuple[Array, Array]:
    """Factor and shift of a fitted scaler: it maps ``x`` to ``factor * x + shift``."""
    preprocessing = require("sklearn.preprocessing", "sklearn")
    one, zero = np.ones(1), np.zeros(1)
    if isinstance(step, preprocessing.FunctionTransformer):
        if step.func is not None or step.inverse_func is not None:
            raise refuse(
                "a FunctionTransformer",
                f"func={step.func!r}, inverse_func={step.inverse_func!r}",
                ("func=None, inverse_func=None",),
                where=where,
            )
        return one, zero
    check_fitted(step, where)
    check_own(step, "transform", where)
    if getattr(step, "clip", False):
        raise refuse(
            "a scaler", f"{type(step).__name__}(clip=True)", SCALERS, where=where,
            remedy="Clipping is not affine; fit with clip=False.",
        )  # fmt: skip
    if isinstance(step, preprocessing.StandardScaler):
        factor = 1.0 / vector(step.scale_) if step.with_std else one
        return factor, -factor * (vector(step.mean_) if step.with_mean else zero)
    if isinstance(step, preprocessing.RobustScaler):
        factor = 1.0 / vector(step.scale_) if step.with_scaling else one
        center = vector(step.center_) if step.with_centering else zero
        return factor, -factor * center
    if isinstance(step, preprocessing.MinMaxScaler):
        return vector(step.scale_), vector(step.min_)
    if isinstance(step, preprocessing.MaxAbsScaler):
        return 1.0 / vector(step.scale_), zero
    raise refuse("a transformer", type(step).__name__, accepted, where=where)


def vector(values: npt.ArrayLike) -> Array:
    """A flat array of numbers."""
    return np.asarray(values, dtype=np.float64).ravel()
