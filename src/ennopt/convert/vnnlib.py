"""Properties in VNN-LIB files: boxes of inputs, and linear constraints on outputs.

A file declares inputs ``X_0, X_1, ...`` and outputs ``Y_0, Y_1, ...`` and asserts what
a counterexample must satisfy. We read linear constraints joined by ``and`` and ``or``
and make a list of cases of it, each a conjunction: the property is violated if some
input satisfies one of the cases. Nothing is evaluated; time is linear in the file, and
the number of cases, the nesting and the size are limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.domain import Domain, Rows
from ennopt.network import Array

LARGEST_FILE = 2**26
DEEPEST = 100
"""Brackets within brackets."""

MOST_CASES = 10_000
MOST_CONSTRAINTS = 1_000_000
"""In all cases together."""

TOKEN = re.compile(r"\s+|;[^\n]*|([()])|([^\s();]+)")
VARIABLE = re.compile(r"([XY])_(0|[1-9][0-9]{0,6})")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class PropertyError(ValueError):
    """A file is no property that we can read."""


Terms = dict[tuple[str, int], float]
"""Coefficients by variable, ``("", 0)`` for the constant."""


@dataclass(frozen=True, slots=True)
class Case:
    """Constraints ``terms <= 0``, all of which a counterexample satisfies."""

    constraints: tuple[Terms, ...] = ()

    def domain(self, num_inputs: int) -> Domain | None:
        """The inputs that the case allows, ``None`` if bounds contradict each other."""
        lower, upper = np.full(num_inputs, -np.inf), np.full(num_inputs, np.inf)
        rows, sides = [], []
        for terms in self.constraints:
            inputs = {k: c for (kind, k), c in terms.items() if kind == "X" and c}
            if not inputs or _outputs(terms):
                continue
            side = -terms.get(("", 0), 0.0)
            if len(inputs) == 1:
                ((k, c),) = inputs.items()
                at, exact = side / c, abs(c) == 1.0  # a quotient is rounded outwards
                if c > 0:
                    at = at if exact else float(np.nextafter(at, np.inf))
                    upper[k] = min(upper[k], at)
                else:
                    at = at if exact else float(np.nextafter(at, -np.inf))
                    lower[k] = max(lower[k], at)
                continue
            row = np.zeros(num_inputs)
            row[list(inputs)] = list(inputs.values())
            rows.append(row)
            sides.append(side)
        if not np.isfinite(np.concatenate([lower, upper])).all():
            k = int(np.argmin(np.isfinite(lower) & np.isfinite(upper)))
            raise PropertyError(
                f"Expected two bounds of every input, got fewer at X_{k}."
            )
        if np.any(lower > upper):
            return None
        none = Rows.none(num_inputs)
        least, most = np.full(len(rows), -np.inf), np.array(sides)
        linear = Rows(np.array(rows), least, most) if rows else none
        return Domain(lower, upper, rows=linear)

    def outputs(self, num_outputs: int) -> tuple[Array, Array]:
        """Constraints on outputs as ``matrix @ y <= sides``."""
        matrix, sides = [], []
        for terms in self.constraints:
            used = _outputs(terms)
            if not used:
                continue
            if any(kind == "X" and c for (kind, _), c in terms.items()):
                raise PropertyError(
                    "Expected constraints on inputs or on outputs, got one on both."
                )
            row = np.zeros(num_outputs)
            row[list(used)] = list(used.values())
            matrix.append(row)
            sides.append(-terms.get(("", 0), 0.0))
        return np.array(matrix).reshape(len(sides), num_outputs), np.array(sides)

    @property
    def contradicts(self) -> bool:
        """Whether a constraint without any variable is false."""
        return any(
            not any(c for (kind, _), c in terms.items() if kind)
            and terms.get(("", 0), 0.0) > 0
            for terms in self.constraints
        )


def _outputs(terms: Terms) -> dict[int, float]:
    return {k: c for (kind, k), c in terms.items() if kind == "Y" and c}


@dataclass(frozen=True, slots=True)
class Property:
    """What a counterexample satisfies: one of the cases.

    Examples
    --------
    >>> text = '''(declare-const X_0 Real) (declare-const Y_0 Real)
    ... (assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= Y_0 (* 2 1.5)))'''
    >>> found = Property.of(text)
    >>> found.num_inputs, found.num_outputs, found.cases[0].outputs(1)
    (1, 1, (array([[-1.]]), array([-3.])))
    """

    num_inputs: int
    num_outputs: int
    cases: tuple[Case, ...]

    @classmethod
    def read(cls, path: str | Path) -> Property:
        """Read a file."""
        path = Path(path)
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise PropertyError(
                f"Expected a property of at most {LARGEST_FILE:,} bytes, got {size:,} "
                f"at {path.name}."
            )
        try:
            return cls.of(path.read_text(encoding="utf-8"))
        except (PropertyError, UnicodeDecodeError) as error:
            raise PropertyError(f"{error} In {path.name}.") from error

    @classmethod
    def of(cls, text: str) -> Property:
        """Read a text."""
        reader = _Reader()
        for command in _expressions(text):
            reader.take(command)
        cases = tuple(Case(tuple(case)) for case in reader.cases)
        return cls(reader.count("X"), reader.count("Y"), cases)


def _expressions(text: str) -> Iterator[list[Any]]:
    """Commands of a file as nested lists."""
    stack: list[list[Any]] = []
    for found in TOKEN.finditer(text):
        bracket, word = found.groups()
        if bracket == "(":
            if len(stack) == DEEPEST:
                raise PropertyError(f"Expected at most {DEEPEST} nested brackets.")
            stack.append([])
        elif bracket == ")":
            if not stack:
                raise PropertyError("Expected '(' before ')'.")
            done = stack.pop()
            if stack:
                stack[-1].append(done)
            else:
                yield done
        elif word is not None:
            if not stack:
                raise PropertyError(
                    f"Expected a command in brackets, got {word!r:.40}."
                )
            stack[-1].append(word)
    if stack:
        raise PropertyError(f"Expected ')' for every '(', got {len(stack)} too few.")


@dataclass(slots=True)
class _Reader:
    """Commands read so far."""

    declared: set[tuple[str, int]] = field(default_factory=set)
    cases: list[list[Terms]] = field(default_factory=lambda: [[]])

    def take(self, command: list[Any]) -> None:
        """Read one command."""
        match command:
            case ["declare-const", str(name), "Real"]:
                self.declared.add(_variable(name))
            case ["declare-fun", str(name), [], "Real"]:
                self.declared.add(_variable(name))
            case ["assert", formula]:
                self.cases = _joined(self.cases, self.formula(formula))
            case [("set-logic" | "set-info" | "set-option" | "check-sat" | "exit"), *_]:
                pass
            case _:
                told = command[0] if command else "nothing"
                raise PropertyError(
                    f"Expected declare-const or assert, got {told!r:.40}."
                )

    def count(self, kind: str) -> int:
        """Number of inputs or outputs, which must be numbered without holes."""
        places = {k for own, k in self.declared if own == kind}
        if not places or max(places) + 1 != len(places):
            raise PropertyError(
                f"Expected {kind}_0, {kind}_1, ... without holes, got {len(places)}."
            )
        return len(places)

    def formula(self, formula: Any) -> list[list[Terms]]:
        """The cases of a formula."""
        match formula:
            case ["and", *parts]:
                cases: list[list[Terms]] = [[]]
                for part in parts:
                    cases = _joined(cases, self.formula(part))
                return cases
            case ["or", *parts]:
                found = [case for part in parts for case in self.formula(part)]
                return _limited(found)
            case ["<=", left, right]:
                return [[_minus(self.term(left), self.term(right))]]
            case [">=", left, right]:
                return [[_minus(self.term(right), self.term(left))]]
            case ["=", left, right]:
                one, other = self.term(left), self.term(right)
                return [[_minus(one, other), _minus(other, one)]]
        raise PropertyError(
            f"Expected and, or, <=, >= or =, got {str(formula)!r:.60}. Write other "
            "connectives with these."
        )

    def term(self, term: Any) -> Terms:
        """A linear term."""
        match term:
            case str():
                if NUMBER.fullmatch(term):
                    return {("", 0): float(term)}
                variable = _variable(term)
                if variable not in self.declared:
                    raise PropertyError(
                        f"Expected a declared variable, got {term!r:.40}."
                    )
                return {variable: 1.0}
            case ["+", *parts]:
                total: Terms = {}
                for part in parts:
                    total = _minus(total, self.term(part), -1.0)
                return total
            case ["-", first]:
                return _minus({}, self.term(first))
            case ["-", first, *others]:
                total = self.term(first)
                for other in others:
                    total = _minus(total, self.term(other))
                return total
            case ["*", left, right]:
                one, other = self.term(left), self.term(right)
                if set(other) <= {("", 0)}:
                    one, other = other, one
                if set(one) <= {("", 0)}:
                    return _minus({}, other, -one.get(("", 0), 0.0))
                raise PropertyError("Expected a product with a number, got another.")
        raise PropertyError(f"Expected a linear term, got {str(term)!r:.60}.")


def _variable(name: str) -> tuple[str, int]:
    found = VARIABLE.fullmatch(name)
    if found is None:
        raise PropertyError(f"Expected a variable X_k or Y_k, got {name!r:.40}.")
    return found[1], int(found[2])


def _minus(one: Terms, other: Terms, factor: float = 1.0) -> Terms:
    total = dict(one)
    for key, coefficient in other.items():
        total[key] = total.get(key, 0.0) - factor * coefficient
    if not np.isfinite(list(total.values())).all():
        raise PropertyError("Expected finite coefficients.")
    return total


def _joined(one: list[list[Terms]], other: list[list[Terms]]) -> list[list[Terms]]:
    """The cases of both formulas together; the lists of the first may be used up."""
    size = len(one) * len(other) * (len(one[0] if one else ()) + 1)
    if len(one) * len(other) > MOST_CASES or size > MOST_CONSTRAINTS:
        raise PropertyError(
            f"Expected at most {MOST_CASES:,} cases with {MOST_CONSTRAINTS:,} "
            "constraints in all, got more."
        )
    if len(other) == 1:
        for case in one:
            case.extend(other[0])
        return one
    return [first + second for first in one for second in other]


def _limited(cases: list[list[Terms]]) -> list[list[Terms]]:
    if len(cases) > MOST_CASES:
        raise PropertyError(
            f"Expected at most {MOST_CASES:,} cases, got {len(cases):,}."
        )
    return cases
