"""A conclusion of the paper with its verdict: how it is judged, and how it is told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ennopt.study.significance import LEVEL, in_words, sign_test

Verdict: TypeAlias = Literal["holds", "holds partly", "does not hold", "not measured"]

BEGIN, END = "<!-- reading: begin -->", "<!-- reading: end -->"
"""Marks of the reading in a Markdown file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A conclusion of the paper, and what a record says about it.

    Parameters
    ----------
    claim
        What the paper concludes, in our words.
    source
        Where it does.
    verdict
        What the record says.
    measured
        In sentences.
    runs
        Runs behind it.
    caveats
        What speaks against reading too much into it.
    """

    claim: str
    source: str
    verdict: Verdict
    measured: str
    runs: int
    caveats: tuple[str, ...] = ()


def verdict_of(holds: bool, partly: bool, known: bool = True) -> Verdict:
    """The verdict in words."""
    if not known:
        return "not measured"
    return "holds" if holds else "holds partly" if partly else "does not hold"


@dataclass(frozen=True, slots=True)
class Pairs:
    """How often one of two methods was ahead."""

    wins: int
    losses: int
    ties: int

    @classmethod
    def of(cls, values: Iterable[tuple[float, float]]) -> Pairs:
        """Of pairs in which the smaller number is ahead."""
        both = list(values)
        wins = sum(first < second for first, second in both)
        losses = sum(second < first for first, second in both)
        return cls(wins, losses, len(both) - wins - losses)

    @property
    def chance(self) -> float:
        """Of the sign test."""
        return sign_test(self.wins, self.losses)

    @property
    def verdict(self) -> Verdict:
        """Ahead by more than chance, ahead, or neither."""
        more = self.wins > self.losses
        known = bool(self.wins + self.losses + self.ties)
        return verdict_of(more and self.chance < LEVEL, more, known)

    def __str__(self) -> str:
        ties = f", {self.ties} equal" if self.ties else ""
        return f"{self.wins} to {self.losses}{ties}, sign test {in_words(self.chance)}"


def geometric(values: Iterable[float]) -> float:
    """Geometric mean of times, not below a millisecond; not a number of none."""
    logs = [math.log(max(value, 1e-3)) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def to_markdown(findings: Sequence[Finding], lead: str) -> str:
    """A list: verdict, conclusion, what was measured, caveats."""
    lines = [lead, ""]
    for finding in findings:
        lines.append(
            f"- **{finding.verdict.capitalize()}.** *{finding.claim}* "
            f"({finding.source}; {finding.runs} runs) {finding.measured}"
        )
        lines += [f"  - {caveat}" for caveat in finding.caveats]
    return "\n".join(lines) + "\n"


def put_into(text: str, findings: Sequence[Finding], lead: str) -> str:
    """A Markdown text with the reading between its marks.

    Raises
    ------
    ValueError
        When the text has no marks.
    """
    if BEGIN not in text or END not in text:
        raise ValueError(f"Expected {BEGIN} and {END} in the file, got no such marks.")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return f"{head}{BEGIN}\n{to_markdown(findings, lead)}{END}{tail}"
