"""Linear constraints as text: ``"2*cement <= 900 + slag"``.

A text is read by the small parser below, never evaluated::

    statement:  sum (sign sum)+           sign is <=, >=, == or =
    sum:        product (("+" | "-") product)*
    product:    factor (("*" | "/") factor)*
    factor:     ("+" | "-")* (number | name | name "(" name ")" | "(" sum ")")

A name in parentheses after another one is a function of a prediction, where there are
some. A name is letters, digits, dots and underscores; any other stands in backticks.
Numbers are computed as fractions, so that ``0.1*a + 0.2*a == 0.3*a`` is seen to say
nothing, and rounded to float64 once, at the end.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, NoReturn

import numpy as np

from ennopt.domain.frames import unknown_name
from ennopt.domain.rows import Rows
from ennopt.network import Array, shown

LONGEST_TEXT = 20_000
LONGEST_NUMBER = 100
DEEPEST = 50
LARGEST_BITS = 4096
"""What a text may ask of us: characters in all and in a number, parentheses inside each
other, and bits of a numerator or denominator. More is refused, not computed."""

SHOWN_AROUND = 30
"""Characters that a message shows on either side of a mistake."""

PLAIN_NAME = r"[^\W\d][\w.]*"
TOKEN = re.compile(
    rf"""\s*(?:
    (?P<number> (?:[0-9]+\.?[0-9]*|\.[0-9]+) (?:[eE][+-]?[0-9]+)? )
    | (?P<name> {PLAIN_NAME} )
    | `(?P<quoted> (?:[^`]|``)+ )`
    | (?P<sign> [<>=!]=|\*\*|//|[-+*/^()=<>≤≥] )
    | (?P<other> \S )
    )""",
    re.VERBOSE,
)
SAME = {"=": "==", "≤": "<=", "≥": ">="}
COMPARISONS = {"<=": ">=", ">=": "<=", "==": "=="}
"""Each comparison, and what it becomes when its sides are exchanged."""

FUNCTION = re.compile(r"[a-z]+\(.*\)")
"""How a function of a prediction is named: ``std(strength)``."""

JOINING = ("and", "or", "not", "if", "in")


def read_statement(text: str, names: Sequence[str], things: str = "inputs") -> Rows:
    """The linear constraints that a text states, mostly one.

    Parameters
    ----------
    text
        Such as ``"2*cement <= 900 + slag"`` or ``"100 <= a + b <= 200"``.
    names
        Of the inputs.
    things
        What has these names, for messages.

    Examples
    --------
    >>> rows = read_statement("2*(slag + `fly ash`) <= 900", ["slag", "fly ash"])
    >>> rows.matrix.tolist(), rows.most.tolist()
    ([[2.0, 2.0]], [900.0])
    >>> read_statement("water/cement <= 0.6", ["water", "cement"])
    Traceback (most recent call last):
    ...
    ValueError: Expected a linear constraint, got a division by inputs at 'water/cement'
    in 'water/cement <= 0.6' (character 1). Multiply both sides by ...
    """
    if len(text) > LONGEST_TEXT:
        raise ValueError(
            f"Expected a constraint of at most {LONGEST_TEXT} characters, got "
            f"{len(text)}. Give it as a matrix instead."
        )
    return _Reader(text, names, things).statement()


def read_sum(
    text: str, names: Sequence[str], things: str = "inputs"
) -> tuple[Array, float]:
    """The linear function that a text states: slopes (num_names,) and a constant.

    Examples
    --------
    >>> slopes, constant = read_sum("3*slag - 0.1*cement + 2", ["cement", "slag"])
    >>> slopes.tolist(), constant
    ([-0.1, 3.0], 2.0)
    """
    if len(text) > LONGEST_TEXT:
        raise ValueError(
            f"Expected an expression of at most {LONGEST_TEXT} characters, got "
            f"{len(text)}."
        )
    return _Reader(text, names, things).function()


def names_in(text: str) -> list[str]:
    """The names that a text mentions, whether they are those of inputs or not.

    Examples
    --------
    >>> names_in("2*cement <= 900 + `fly ash`")
    ['cement', 'fly ash']
    """
    found = []
    for match in TOKEN.finditer(text[:LONGEST_TEXT]):
        if match["name"] is not None:
            found.append(match["name"])
        elif match["quoted"] is not None:
            found.append(match["quoted"].replace("``", "`"))
    return found


def stated(slopes: Array, least: float, most: float, names: Sequence[str]) -> str:
    """A linear constraint as a text that `read_statement` reads back.

    Examples
    --------
    >>> stated([1.0, -0.5, 0.0], 0.0, np.inf, ["water", "fly ash", "age"])
    'water - 0.5*`fly ash` >= 0'
    """
    terms = []
    for slope, name in zip(slopes, names, strict=True):
        if slope:
            size = "" if abs(slope) == 1 else f"{_written(abs(slope))}*"
            terms.append(f"{'-' if slope < 0 else '+'} {size}{quoted(name)}")
    total = " ".join(terms) or "+ 0"
    total = total[2:] if total.startswith("+") else f"-{total[2:]}"
    if least == most:
        return f"{total} == {_written(least)}"
    if math.isinf(least):
        return f"{total} <= {_written(most)}"
    if math.isinf(most):
        return f"{total} >= {_written(least)}"
    return f"{_written(least)} <= {total} <= {_written(most)}"


def quoted(name: str) -> str:
    """A name as it stands in a constraint: in backticks, if it needs them.

    Examples
    --------
    >>> quoted("ash"), quoted("fly ash")
    ('ash', '`fly ash`')
    """
    if re.fullmatch(PLAIN_NAME, name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _written(number: float) -> str:
    return repr(float(number) + 0.0).removesuffix(".0")  # the sum ends negative zeros


class _Token(NamedTuple):
    """A word of a text: its kind, what it says, and where it begins and ends."""

    kind: str
    word: str
    begin: int
    end: int


@dataclass(slots=True)
class _Form:
    """A linear function: coefficients by input, none of them zero, and a constant."""

    slopes: dict[int, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    def add(self, other: _Form, factor: int) -> None:
        """Add `factor` times another."""
        self.constant += factor * other.constant
        for j, slope in other.slopes.items():
            self.slopes[j] = self.slopes.get(j, Fraction(0)) + factor * slope
            if not self.slopes[j]:
                del self.slopes[j]

    def times(self, factor: Fraction) -> _Form:
        """The function times a number."""
        slopes = {j: factor * slope for j, slope in self.slopes.items() if factor}
        return _Form(slopes, factor * self.constant)


@dataclass(slots=True)
class _Side:
    """A row in the making: what a comparison, or several of equal slopes, say."""

    slopes: dict[int, Fraction]
    begin: int
    end: int
    least: Fraction | None = None
    most: Fraction | None = None


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, names: Sequence[str], things: str) -> None:
        self.text = text
        self.names = names
        self.things = things
        self.linear = "a linear constraint"
        self.columns = {name: j for j, name in enumerate(names)}
        self.tokens = list(self._tokens())
        self.at = 0

    # Words.

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while found := TOKEN.match(self.text, at):
            kind = str(found.lastgroup)
            word, at = found[kind], found.end()
            token = _Token(kind, SAME.get(word, word), found.start(kind), at)
            if kind == "other":
                remedy = "Names with spaces or other signs stand in backticks."
                if word == "`":
                    remedy = "Close the backtick."
                elif word == ",":
                    remedy = "Decimals have a point; several constraints are a list."
                self._refuse("numbers, names and + - * / ( )", token, remedy)
            if kind == "quoted":
                token = token._replace(kind="name", word=word.replace("``", "`"))
            yield token
        end = len(self.text)
        yield _Token("end", "", end, end)

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def _take(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    # Grammar.

    def statement(self) -> Rows:
        """All of the text."""
        begin, left = 0, self._sum(0)
        sides: list[_Side] = []
        while self.next.word in COMPARISONS and self.next.kind == "sign":
            comparison = self._take()
            middle, right = self.next.begin, self._sum(0)
            self._compare(left, comparison, right, begin, sides)
            begin, left = middle, right
        if self.next.kind != "end":
            self._misplaced()
        if not sides:
            self._fail("Expected a comparison (<=, >= or ==), got none", "Add one.")
        return self._rows(sides)

    def function(self) -> tuple[Array, float]:
        """All of the text, without a comparison."""
        self.linear = "a linear expression"
        form = self._sum(0)
        if self.next.kind == "sign" and self.next.word in COMPARISONS:
            self._refuse("a sum, not a comparison", self.next, "State it as a limit.")
        if self.next.kind != "end":
            self._misplaced()
        slopes = np.zeros(len(self.names))
        for j, slope in form.slopes.items():
            slopes[j] = self._rounded(slope)
        return slopes, self._rounded(form.constant)

    def _sum(self, depth: int) -> _Form:
        total = self._product(depth)
        while self.next.kind == "sign" and self.next.word in "+-":
            factor = 1 if self._take().word == "+" else -1
            term = self._product(depth)
            total.add(term, factor)
            self._small(total.constant, *(total.slopes.get(j, 0) for j in term.slopes))
        return total

    def _product(self, depth: int) -> _Form:
        first = self.next
        total, factor = self._factor(depth), Fraction(1)
        while self.next.kind == "sign" and self.next.word in "*/":
            operator, by = self._take(), self._factor(depth)
            whole = _Token("", "", first.begin, self.tokens[self.at - 1].end)
            if operator.word == "/":
                if by.slopes:
                    self._refuse_division(whole)
                if not by.constant:
                    self._refuse("a divisor other than zero", whole, "", "zero")
                factor /= by.constant
            elif by.slopes and total.slopes:
                self._refuse(
                    self.linear, whole,
                    f"Multiply {self.things} by numbers only.",
                    f"a product of {self.things.replace(' and ', ' or ')}",
                )  # fmt: skip
            elif by.slopes:
                factor, total = factor * total.constant, by
            else:
                factor *= by.constant
            self._small(factor)
        total = total.times(factor)
        self._small(total.constant, *total.slopes.values())
        return total

    def _factor(self, depth: int) -> _Form:
        sign = 1
        while self.next.kind == "sign" and self.next.word in "+-":
            sign = sign if self._take().word == "+" else -sign
        token = self._take()
        match token:
            case _Token(kind="number"):
                form = _Form({}, self._number(token))
            case _Token(kind="name"):
                form = _Form({self._column(token): Fraction(1)})
            case _Token(kind="sign", word="("):
                if depth == DEEPEST:
                    self._refuse(
                        f"at most {DEEPEST} parentheses inside each other", token,
                        "Multiply them out.", "more",
                    )  # fmt: skip
                form = self._sum(depth + 1)
                if (self.next.kind, self.next.word) != ("sign", ")"):
                    self._misplaced(token)
                self._take()
            case _:
                self.at -= 1
                self._misplaced()
        return form.times(Fraction(-1)) if sign < 0 else form

    def _number(self, token: _Token) -> Fraction:
        rounded = float(token.word)
        mantissa = token.word.lower().partition("e")[0]
        is_zero = not mantissa.strip("0.")
        if len(token.word) > LONGEST_NUMBER or (
            not is_zero and (math.isinf(rounded) or not rounded)
        ):
            self._refuse("a number that float64 can hold", token, "Rescale the input.")
        return Fraction(0) if is_zero else Fraction(token.word)

    def _column(self, token: _Token) -> int:
        if token.word in self.columns:
            return self.columns[token.word]
        if (self.next.kind, self.next.word) == ("sign", "("):
            return self._function(token)
        plain = [name for name in self.names if not FUNCTION.fullmatch(name)]
        remedy = unknown_name(token.word, plain, self.things)
        if not all(re.fullmatch(PLAIN_NAME, name) for name in plain):
            remedy += " Names with spaces or other signs stand in backticks."
        what = "an input" if self.things == "inputs" else "a prediction or an input"
        return self._refuse(f"the name of {what}", token, remedy)

    def _function(self, token: _Token) -> int:
        """The column of a function of a prediction; its ``(`` is the next word."""
        opened = self.next
        inner, close = [*self.tokens[self.at + 1 : self.at + 3], opened, opened][:2]
        whole = f"{token.word}({inner.word})"
        is_call = inner.kind == "name" and (close.kind, close.word) == ("sign", ")")
        if is_call and whole in self.columns:
            self.at += 3
            return self.columns[whole]
        calls = [name for name in self.names if FUNCTION.fullmatch(name)]
        words = sorted({name.partition("(")[0] for name in calls})
        if is_call and token.word in words:
            known = [name.partition("(")[2].removesuffix(")") for name in calls]
            remedy = unknown_name(inner.word, list(dict.fromkeys(known)), "predictions")
            self._refuse("the name of a prediction", inner, remedy)
        near = difflib.get_close_matches(token.word, words, n=1)
        remedy = f"Did you mean {near[0]}()? " if near else ""
        also = ", and " + ", ".join(f"{word}()" for word in words) + " of a prediction,"
        remedy += f"Only + - * / with numbers{also * bool(words)} are understood."
        token = token._replace(end=opened.end)
        return self._refuse(self.linear, token, remedy, "a function")

    def _small(self, *numbers: Fraction | int) -> None:
        """Refuse numbers that would take long to compute with."""
        if any(
            max(n.numerator.bit_length(), n.denominator.bit_length()) > LARGEST_BITS
            for n in numbers
        ):
            self._fail(
                f"Expected numbers of at most {LARGEST_BITS} bits, got more",
                "Write the coefficients out as decimals.",
            )

    # Meaning.

    def _compare(
        self, left: _Form, comparison: _Token, right: _Form, begin: int,
        sides: list[_Side],
    ) -> None:  # fmt: skip
        """Add a comparison to the rows: inputs on the left, a number on the right."""
        word, end = comparison.word, self.tokens[self.at - 1].end
        if not left.slopes:  # 100 <= a + b is a + b >= 100
            word, left, right = COMPARISONS[word], right, left
        difference = _Form(dict(left.slopes), left.constant)
        difference.add(right, -1)
        side = -difference.constant
        if not difference.slopes:
            holds = {"<=": side >= 0, ">=": side <= 0, "==": side == 0}[word]
            place = _Token("", "", begin, end)
            self._refuse(
                "a constraint on the inputs", place,
                "Leave it out, or name an input.",
                f"one that no input changes (it is always {str(holds).lower()})",
            )  # fmt: skip
        for row in sides:
            if row.slopes == difference.slopes:
                break
        else:
            row = _Side(difference.slopes, begin, end)
            sides.append(row)
        row.end = end
        if word in (">=", "=="):
            row.least = side if row.least is None else max(side, row.least)
        if word in ("<=", "=="):
            row.most = side if row.most is None else min(side, row.most)

    def _rows(self, sides: list[_Side]) -> Rows:
        matrix = np.zeros((len(sides), len(self.names)))
        least, most = np.full(len(sides), -np.inf), np.full(len(sides), np.inf)
        for k, row in enumerate(sides):
            for j, slope in row.slopes.items():
                matrix[k, j] = self._rounded(slope)
            if row.least is not None:
                least[k] = self._rounded(row.least)
            if row.most is not None:
                most[k] = self._rounded(row.most)
            if least[k] > most[k]:
                self._fail(
                    "Expected a lower side below the upper one, got "
                    f"[{least[k]:g}, {most[k]:g}]",
                    "Exchange them.",
                )
        texts = [self.text[row.begin : row.end].strip() for row in sides]
        return Rows(matrix, least, most, tuple(texts))

    def _rounded(self, number: Fraction) -> float:
        try:
            rounded = float(number)
        except OverflowError:
            rounded = math.inf
        if math.isinf(rounded) or (number and not rounded):
            self._fail(
                "Expected coefficients that float64 can hold, got a larger or smaller "
                "one",
                "Rescale the inputs.",
            )
        return rounded

    # Messages.

    def _misplaced(self, opened: _Token | None = None) -> NoReturn:
        """Refuse the next word, which cannot stand where it stands."""
        token = self.next
        before = self.tokens[self.at - 1] if self.at else None
        operand = before is not None and (
            before.kind in ("number", "name") or before.word == ")"
        )
        if before is None and token.kind == "end":
            self._fail(f"Expected {self.linear}, got an empty text", "Leave it out.")
        if token.kind == "end" and opened is None:
            self._fail("Expected a number or an input, got none at the end", "Add it.")
        if before is not None and self.text[before.begin : token.end] in ("=<", "=>"):
            both = before._replace(end=token.end)
            self._refuse(f"{token.word}=", both, f"Write {token.word}=.")
        if token.kind == "sign" and token.word in ("<", ">"):
            self._refuse(
                f"{token.word}=", token,
                f"An open set may have no best point. Write {token.word}=.",
            )  # fmt: skip
        if token.kind == "sign" and token.word == "!=":
            self._refuse("<=, >= or ==", token, "Solve once for each side.")
        if token.kind == "sign" and token.word in ("**", "^", "//"):
            self._refuse(
                self.linear, token,
                "Only + - * / with numbers are understood; write numbers out.",
            )  # fmt: skip
        if operand and token.kind == "name" and token.word in JOINING:
            self._refuse(
                "one comparison or chain", token, "Give several constraints as a list."
            )
        if operand and (token.kind in ("number", "name") or token.word == "("):
            self._refuse("+ - * / <= >= or ==", token, "Products are written 2*a.")
        if opened is not None and (token.kind == "end" or token.word in COMPARISONS):
            self._refuse("a ) for each (", opened, "Close it before the comparison.")
        if token.word == ")":
            self._refuse("a ( for each )", token, "Open it, or leave it out.")
        self._refuse("a number, an input or (", token, "")

    def _refuse_division(self, whole: _Token) -> NoReturn:
        remedy = "Divide by numbers only."
        if self.linear == "a linear constraint":
            remedy = (
                "Multiply both sides by what stands below the line: water/cement <= "
                "0.6 is water <= 0.6*cement where cement is positive."
            )
        things = self.things.replace(" and ", " or ")
        self._refuse(self.linear, whole, remedy, f"a division by {things}")

    def _refuse(
        self, expected: str, token: _Token, remedy: str, got: str = ""
    ) -> NoReturn:
        """Refuse a part of the text."""
        word = self.text[token.begin : token.end]
        if len(word) > 2 * SHOWN_AROUND:
            word = word[: 2 * SHOWN_AROUND - 3] + "..."
        place = f"{got} at {shown(word)!r}" if got else f"{shown(word)!r}"
        self._fail(f"Expected {expected}, got {place}", remedy, token)

    def _fail(self, told: str, remedy: str, token: _Token | None = None) -> NoReturn:
        begin = 0 if token is None else token.begin
        low = max(0, begin - SHOWN_AROUND)
        end = begin if token is None else min(token.end, begin + SHOWN_AROUND)
        high = end + SHOWN_AROUND
        part = "..." * (low > 0) + self.text[low:high] + "..." * (high < len(self.text))
        where = f" (character {begin + 1})" if token is not None else ""
        raise ValueError(f"{told} in {part.strip()!r}{where}. {remedy}".strip())
