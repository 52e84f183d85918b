"""Repeat the proof of a certificate, with bounds and rounding margins of its own.

Three things are checked. The point is in the feasible set. Its value, by a forward pass
of our own, is the one claimed, up to the rounding of two forward passes. And no point
is better than the bound: starting with the whole set, each piece is bounded; a piece
whose bound is above the claim is split, where the certificate advises it or, below the
leaves of its tree, where our own relaxation is least accurate. The two halves of a
piece cover it, so all pieces cover the set, whatever the certificate says.

What is proved: the claim for the exact sum of the networks, computed with real numbers
from the weights as they are stored, at every point that `Domain.feasible` accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from ennopt.certificate.pieces import Pieces, Prover
from ennopt.certificate.record import Certificate, fingerprint
from ennopt.certificate.relaxation import LARGEST, Relaxation, stacks_of
from ennopt.domain import Domain
from ennopt.network import Array, Ensemble

BATCH = 128
"""Pieces bounded at once: what they need then fits a processor's cache."""

ROUND = 16 * BATCH
"""Pieces bounded between two reports, and in one unit of parallel work."""

OWN_FACTOR, OWN_PIECES = 64, 100_000
"""A check gives up after so many pieces for each node of the certificate, and so many
more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Parameters
    ----------
    verified
        Whether the claim is proved.
    reason
        A sentence: what was proved, or what failed and where.
    value, bound
        The claim.
    pieces
        How many pieces were bounded.
    leaves
        Leaves of the certificate's tree.
    domain
        The feasible set that the claim is about.
    """

    verified: bool
    reason: str
    value: float
    bound: float
    pieces: int
    leaves: int
    domain: Domain

    def __bool__(self) -> bool:
        return self.verified


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a check is: pieces bounded, and pieces that wait."""

    pieces: int
    waiting: int


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Everything that a round of the check needs: plain data."""

    ensemble: Ensemble
    certificate: Certificate

    def prover(self) -> Prover:
        claim = self.certificate
        sign = 1.0 if claim.sense == "max" else -1.0
        stacks = stacks_of(self.ensemble, claim.output, sign)
        relaxation = Relaxation(stacks, claim.domain.lower, claim.domain.upper)
        return Prover(relaxation, claim.domain, sign * claim.bound)


def check(
    certificate: Certificate,
    ensemble: Ensemble,
    *,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Callable[[Checked], Any] | None = None,
    most_pieces: float | None = None,
) -> Verdict:
    """Repeat the proof of a certificate for a model.

    Parameters
    ----------
    certificate, ensemble
        The claim, and what it is about.
    executor, workers
        Anything with ``submit``, and how many rounds of work it does at once.
    progress
        Called after each round. Return True to give up.
    most_pieces
        Give up after so many pieces; ``None`` for 64 per node of the certificate and
        100,000 more.
    """
    leaves = (certificate.codes.size + 1) // 2

    def verdict(verified: bool, reason: str, pieces: int = 0) -> Verdict:
        claim = certificate
        return Verdict(
            verified, reason, claim.value, claim.bound, pieces, leaves, claim.domain
        )

    if certificate.model != fingerprint(ensemble):
        return verdict(False, "The certificate belongs to another model.")
    if not all(member.is_relu for member in ensemble.members):
        return verdict(False, "The checker has no bounds for activations beside ReLU.")
    if certificate.domain.num_inputs != ensemble.num_inputs:
        return verdict(False, "The certificate has another number of inputs.")
    outputs = 1 if certificate.output is None else certificate.output.size
    if outputs != ensemble.num_outputs:
        return verdict(False, "The certificate has another number of outputs.")
    work = _Work(ensemble, certificate)
    prover = work.prover()
    if not prover.relaxation.largest <= LARGEST:
        return verdict(False, f"The network or the set has sums beyond {LARGEST:g}.")
    wrong = _wrong_point(certificate, prover)
    if wrong is not None:
        return verdict(False, wrong)
    if most_pieces is None:
        most_pieces = OWN_PIECES + OWN_FACTOR * certificate.codes.size
    waiting, failed, count = [prover.root()], None, 0
    pending: set[Future[Any]] = set()
    while (waiting or pending) and failed is None:
        if executor is None or count < ROUND:
            some = _taken(waiting, ROUND)
            results = [_explored(work, prover, some)]
        else:
            while waiting and len(pending) < 2 * workers:
                pending.add(
                    executor.submit(_explored, work, None, _taken(waiting, BATCH))
                )
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            results = [future.result() for future in done]
        for bounded, rest, trouble in results:
            count += bounded
            failed = failed or trouble
            if len(rest):
                waiting.append(rest)
        size = sum(len(part) for part in waiting)
        if progress is not None and progress(Checked(count, size)):
            failed = f"The check was stopped; {size:,} pieces were left."
        if (waiting or pending) and count > most_pieces and failed is None:
            failed = (
                f"After {count:,} pieces {size:,} are not proved: the checker's bounds "
                f"are too weak for this claim, or it is wrong. One is "
                f"{_where(waiting[-1], -1) if waiting else 'under way'}."
            )
    for future in pending:
        future.cancel()
    if failed is not None:
        return verdict(False, failed, count)
    return verdict(True, _proved(certificate), count)


def _proved(claim: Certificate) -> str:
    if claim.x is None and not np.isfinite(claim.bound):
        return "No input is feasible."
    way = "exceed" if claim.sense == "max" else "fall below"
    found = (
        "" if claim.x is None else f"The point has the value {claim.value:.8g}, and "
    )
    return (
        f"{found}{'no' if found else 'No'} feasible input can {way} {claim.bound:.8g}."
    )


def _wrong_point(claim: Certificate, prover: Prover) -> str | None:
    """What is wrong with the point, if anything."""
    if claim.x is None:
        return None
    if claim.x.shape != claim.domain.lower.shape or not claim.domain.contains(claim.x):
        return "The point is not in the feasible set."
    sign = 1.0 if claim.sense == "max" else -1.0
    values, errors = prover.relaxation.forward(claim.x[None])
    # The value claimed was rounded by another forward pass.
    if not abs(sign * claim.value - float(values[0])) <= 2.0 * float(errors[0]):
        return (
            f"The point has the value {sign * float(values[0])!r}, and the certificate "
            f"claims {claim.value!r}."
        )
    if float(values[0]) - float(errors[0]) > sign * claim.bound:
        return f"The point itself is better than the bound {claim.bound!r}."
    return None


def _taken(waiting: list[Pieces], most: int) -> Pieces:
    """Remove the last pieces, at most so many."""
    taken: list[Pieces] = []
    count = 0
    while waiting and count < most:
        last = waiting.pop()
        if count + len(last) > most:
            keep = len(last) - (most - count)
            waiting.append(last[:keep])
            last = last[keep:]
        taken.append(last)
        count += len(last)
    return Pieces.joined(taken)


def _explored(
    work: _Work, prover: Prover | None, pieces: Pieces
) -> tuple[int, Pieces, str | None]:
    """Bound pieces and their parts, at most `ROUND`; what is left, and what failed."""
    prover = work.prover() if prover is None else prover
    codes = work.certificate.codes
    ranks = np.cumsum(codes > 0, dtype=np.int64)  # of a split among all splits, from 1
    waiting, count = [pieces], 0
    while waiting and count < ROUND:
        some = _taken(waiting, BATCH)
        some = some[np.arange(len(some))]
        count += len(some)
        proved, again, bounds, scores, points = prover.prove(some)
        left = np.flatnonzero(~proved)
        if not left.size:
            continue
        trouble = _beaten(work.certificate, prover, points[left])
        if trouble is not None:
            return count, some[:0], trouble
        if again.any():
            waiting.append(some[again])
        left = np.flatnonzero(~proved & ~again)
        if not left.size:
            continue
        part, wanted = some[left], np.argmax(scores[left], axis=1)
        code = np.where(part.place >= 0, codes[part.place], 0).astype(np.intp)
        advised = code > 0
        halves, can = prover.split(part, np.where(advised, code - 1, wanted))
        if not can.all():  # the advice does not fit: split what is widest
            widest = np.argmax(prover.shares(part), axis=1)
            inputs = np.where(can & advised, code - 1, np.where(can, wanted, widest))
            halves, can = prover.split(part, inputs)
            if not can.all():
                i = int(np.argmin(can))
                bound = float(bounds[left][i])
                return count, some[:0], _stuck(work.certificate, part, i, bound)
        first = np.where(advised, 2 * ranks[part.place] - 1, -1)
        halves.place = np.concatenate([first, np.where(advised, first + 1, -1)])
        waiting.append(halves)
    rest = Pieces.joined(waiting) if waiting else pieces[:0]
    return count, rest, None


def _beaten(claim: Certificate, prover: Prover, points: Array) -> str | None:
    """A feasible point that is better than the bound, if one of these is."""
    sign = 1.0 if claim.sense == "max" else -1.0
    values, errors = prover.relaxation.forward(points)
    for i in np.flatnonzero(values - errors > sign * claim.bound).tolist():
        if claim.domain.contains(points[i]):
            return (
                f"The bound {claim.bound!r} is wrong: the feasible input "
                f"{points[i].tolist()} has the value {sign * float(values[i])!r}."
            )
    return None


def _stuck(claim: Certificate, part: Pieces, i: int, bound: float) -> str:
    sign = 1.0 if claim.sense == "max" else -1.0
    return (
        f"The piece {_where(part, i)} cannot be split, and its bound is "
        f"{sign * bound!r}, not {claim.bound!r}."
    )


def _where(pieces: Pieces, i: int) -> str:
    return f"from {pieces.lower[i].tolist()} to {pieces.upper[i].tolist()}"
