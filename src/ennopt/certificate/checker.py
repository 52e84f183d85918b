"""Repeat the proof of a certificate, with bounds and rounding margins of its own.

Three things are checked. The point is in the feasible set and meets the limits. Its
value, by a forward pass of our own, is the one claimed, up to the rounding of two
forward passes. And no point is better than the bound: starting with the whole set, each
piece is bounded; a piece whose bound is above the claim is split, where the certificate
advises it or, below the leaves of its tree, where our own relaxation is least accurate.
The two parts of a piece cover it, so all pieces cover the set, whatever the certificate
says. Bounds of neurons that a certificate states are lemmas, proved in the same way
before they are used.

What is proved: the claim for the exact sum of the networks, computed with real numbers
from the weights as they are stored, at every point that `Domain.feasible` accepts and
that misses no limit by more than its slack. All bounds are those of `core`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from ennopt.certificate.core import (
    LARGEST,
    Model,
    Pieces,
    Prover,
    each_alone,
    functions_of,
)
from ennopt.certificate.lines import Stack, upper_lines
from ennopt.certificate.record import CHORD, OWN, STEEP, Certificate, Lemma, Tree
from ennopt.certificate.words import Names, claim_words
from ennopt.domain import Domain
from ennopt.network import Array, shown
from ennopt.weighting import Weighting

BATCH = 128
"""Pieces bounded at once: what they need then fits a processor's cache."""

ROUND = 16 * BATCH
"""Pieces bounded between two reports, and in one unit of parallel work."""

MOST_SLACK = 1e-8
"""A certificate may let a limit be missed by this share of how large its function can
be. Searches ask for a fifth at most: 1e-9 of its spread, and rounding."""

CLIPPED_SHARE = 0.5
"""A piece whose volume a clip reduced to less is bounded again before it is split."""

THIN = 2.0**-10
"""With pieces this thin, as a share of the set, signs that are known are bounded anew:
those were found where points counted, and on a piece without any they may be wrong."""

KEPT = 3 * 2**20
"""Freed memory for so many numbers stays with the process, see `_explored`."""

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
        Leaves of the certificate's trees.
    domain
        The feasible set that the claim is about.
    claim
        What the claim is about in words, line by line: sense and objective with its
        risks, limits on predictions, feasible set.
    """

    verified: bool
    reason: str
    value: float
    bound: float
    pieces: int
    leaves: int
    domain: Domain
    claim: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verified


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a check is: pieces bounded, and pieces that wait."""

    pieces: int
    waiting: int


class _Failed(Exception):  # noqa: N818 - it says what failed, it is no defect
    """Why a claim is not verified."""


class _Proof:
    """A claim or a lemma, ready to be proved: plain data, for other processes, too.

    Parameters
    ----------
    prover, tree
        What to prove, and advice.
    words
        What is bounded.
    sign
        -1 if a minimum is claimed.
    """

    def __init__(self, prover: Prover, tree: Tree, words: str, sign: float) -> None:
        self.prover, self.tree, self.words, self.sign = prover, tree, words, sign
        # Of a split among all splits, from 1; of a leaf among all leaves, from 0.
        self.ranks = np.cumsum(tree.codes > 0, dtype=np.int64)
        self.leaf = np.cumsum(tree.codes == 0, dtype=np.int64) - 1
        self.slopes = np.zeros(tree.kinds.shape, np.float32)
        self.slopes[tree.kinds == OWN] = tree.slopes
        model, rows = prover.model, len(prover.rows)
        places = int(model.reach.size + model.sizes.size)
        if int(tree.codes.max()) > places:
            raise _Failed(
                f"Expected splits of {places} inputs and neurons, got number "
                f"{int(tree.codes.max()) - 1}."
            )
        given = tree.kinds.shape[1], tree.multiples.shape[1]
        if tree.kinds.shape[0] and given != (model.sizes.size, rows):
            raise _Failed("Expected slopes for every neuron and every constraint.")

    @property
    def claimed(self) -> float:
        """The bound, in the sense of the claim."""
        return self.sign * self.prover.levels[0]

    def follow(self, pieces: Pieces) -> tuple[Pieces, Pieces]:
        """Walk down a tree whose leaves have slopes: what is left of these pieces.

        First those that are not at leaves yet, then those at leaves and not proved.
        """
        codes = self.tree.codes[pieces.place].astype(np.intp)
        inner, outer = codes > 0, codes == 0
        parts, _ = self.prover.split(pieces[inner], codes[inner] - 1)
        first = 2 * self.ranks[pieces.place[inner]] - 1
        parts.place = np.concatenate([first, first + 1])
        parts = parts[~np.any(parts.low > parts.high, axis=1)]  # nothing counts there
        left = pieces[outer]
        return parts, left[~(self.bounds(left) <= self.prover.levels[0])]

    def bounds(self, pieces: Pieces) -> Array:
        """Bounds of pieces at leaves, by the slopes of the certificate."""
        leaf = self.leaf[pieces.place]
        kinds, own = self.tree.kinds[leaf], self.slopes[leaf].astype(np.float64)
        chord = upper_lines(pieces.low, pieces.high)[0]

        def lines(columns: slice, r: Array) -> Array:
            kind = kinds[:, columns]
            a = np.where(kind == STEEP, r, own[:, columns])
            return np.where(kind == CHORD, chord[:, columns] * r, a)

        return self.prover.glance(
            pieces, lines, self.tree.multiples[leaf].astype(np.float64)
        )


def check(
    certificate: Certificate,
    *,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Callable[[Checked], Any] | None = None,
    most_pieces: float | None = None,
    names: Names | None = None,
) -> Verdict:
    """Repeat the proof of a certificate.

    Parameters
    ----------
    certificate
        The claim.
    executor, workers
        Anything with ``submit``, and how many rounds of work it does at once.
    progress
        Called after each round. Return True to give up.
    most_pieces
        Give up after so many pieces; ``None`` for 64 per node of the certificate and
        100,000 more.
    names
        What models are called in the verdict, by their fingerprints.
    """
    claim, problem = certificate, certificate.problem
    trees = [*(lemma.tree for lemma in claim.lemmas), claim.tree]
    counted = 0
    most = most_pieces
    if most is None:
        most = OWN_PIECES + OWN_FACTOR * sum(tree.codes.size for tree in trees)

    def told(pieces: int, waiting: int) -> None:
        nonlocal counted
        counted += pieces
        if progress is not None and progress(Checked(counted, waiting)):
            raise _Failed(f"The check was stopped; {waiting:,} pieces were left.")
        if waiting and counted > most:
            raise _Failed(
                f"After {counted:,} pieces {waiting:,} are not proved: the checker's "
                "bounds are too weak for this claim, or it is wrong."
            )

    try:
        prover = _prover(claim)
        _expect_point(claim, prover)
        for lemma in claim.lemmas:
            proof, neuron = _lemma(prover, lemma)
            _prove(proof, told, executor, workers)
            ends = prover.model.high if lemma.sign > 0.0 else prover.model.low
            better = min if lemma.sign > 0.0 else max
            ends[0, neuron] = better(float(ends[0, neuron]), lemma.sign * lemma.bound)
        words = "the objective"
        _prove(_Proof(prover, claim.tree, words, _sign(claim)), told, executor, workers)
        verified, reason = True, _proved(claim)
    except _Failed as failure:
        verified, reason = False, str(failure)
    return Verdict(
        verified, reason, claim.value, claim.bound, counted,
        sum(tree.leaves for tree in trees), problem.domain,
        claim_words(problem, names or {}),
    )  # fmt: skip


def _sign(claim: Certificate) -> float:
    return 1.0 if claim.problem.sense == "max" else -1.0


def _prover(claim: Certificate) -> Prover:
    problem = claim.problem
    for function in problem.functions():
        for term in function.terms:
            if not all(member.is_relu for member in term.ensemble.members):
                raise _Failed("The checker has no bounds for activations beside ReLU.")
    stacks, functions, added = functions_of(problem)
    model = Model(stacks, added, problem.domain.lower, problem.domain.upper)
    if not model.largest <= LARGEST:
        raise _Failed(f"The network or the set has sums beyond {LARGEST:g}.")
    split, levels = functions[:1], [_sign(claim) * claim.bound]
    for limited, limit, slack in zip(
        functions[1:], problem.limits, claim.slack, strict=True
    ):
        alone = [limited] if slack.size == 1 else each_alone(limited)
        if len(alone) != slack.size:
            raise _Failed(
                f"Expected one slack for {shown(limit.text)}, or one for each member "
                f"if it is about the worst, got {slack.size}."
            )
        sizes = np.array([one.heaviest @ model.output_sizes for one in alone])
        if not np.all(slack <= MOST_SLACK * sizes):
            raise _Failed(
                f"The certificate lets {shown(limit.text)} be missed by "
                f"{slack.max():g}, more than {MOST_SLACK:g} of its size: that is "
                "another limit."
            )
        split += alone
        # Two steps down: one for the rounding of the difference, one so that a point on
        # the level itself is above it.
        below = np.nextafter(np.nextafter(limit.least - slack, -np.inf), -np.inf)
        levels += below.tolist()
    return Prover(model, split, levels, problem.domain)


def about_neuron(
    prover: Prover, stack: int, layer: int, neuron: int, sign: float, bound: float
) -> tuple[Prover, int]:
    """The claim that `sign` times a neuron is at most `bound`, and the neuron's column.

    Ends that are known of the neurons before it are used.
    """
    model, whole = prover.model, prover.model.stacks[stack]
    first, before = whole.columns[0].start, whole.columns[:layer]
    row = sign * whole.weights[layer][neuron][None]
    shift = sign * whole.biases[layer][neuron][None]
    alone = Stack(
        whole.weights[:layer], whole.biases[:layer], row, shift, np.abs(row),
        np.abs(shift), tuple(slice(c.start - first, c.stop - first) for c in before),
    )  # fmt: skip
    part = Model([alone], 1, prover.domain.lower, prover.domain.upper)
    known = slice(first, first + part.sizes.size)
    part.low = np.maximum(part.low, model.low[:, known])
    part.high = np.minimum(part.high, model.high[:, known])
    smaller = Prover(part, [Weighting(np.ones(1))], [bound], prover.domain)
    return smaller, whole.columns[layer].start + neuron


def _lemma(prover: Prover, lemma: Lemma) -> tuple[_Proof, int]:
    place = lemma.stack, lemma.layer, lemma.neuron
    try:
        smaller, column = about_neuron(prover, *place, lemma.sign, lemma.bound)
    except IndexError as error:
        raise _Failed("A lemma is about a neuron that there is not.") from error
    if abs(lemma.sign) != 1.0 or min(place) < 0:
        raise _Failed("A lemma is about a neuron that there is not.")
    words = f"neuron {lemma.neuron} of layer {lemma.layer}"
    return _Proof(smaller, lemma.tree, words, lemma.sign), column


def _prove(
    proof: _Proof, told: Callable[[int, int], None], executor: Executor | None,
    workers: int,
) -> None:  # fmt: skip
    """Prove a claim or a lemma, or raise."""
    waiting, count = [proof.prover.root()], 0
    pending: set[Future[Any]] = set()
    try:
        while waiting or pending:
            if executor is None or count < ROUND:
                results = [_explored(proof, _taken(waiting, ROUND))]
            else:
                while waiting and len(pending) < 2 * workers:
                    some = _taken(waiting, BATCH)
                    pending.add(executor.submit(_explored, proof, some))
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                results = [future.result() for future in done]
            for bounded, rest, trouble in results:
                count += bounded
                if trouble:
                    raise _Failed(trouble)
                if len(rest):
                    waiting.append(rest)
                size = sum(len(part) for part in waiting)
                told(bounded, size + (BATCH * len(pending)))
    finally:
        for future in pending:
            future.cancel()


def _explored(proof: _Proof, pieces: Pieces) -> tuple[int, Pieces, str]:
    """Bound pieces and their parts, at most `ROUND`; what is left, and what failed."""
    waiting, count, prover = [pieces], 0, proof.prover
    codes = proof.tree.codes
    # The GNU C library returns blocks above a threshold to the system at once, and to
    # get them back takes longer than what is computed in them. Freeing a large block
    # moves the threshold there.
    block = np.empty(KEPT)
    del block
    while waiting and count < ROUND:
        some = _taken(waiting, BATCH)
        some = some[np.arange(len(some))]
        count += len(some)
        if proof.tree.kinds.shape[0]:
            inside = some.place >= 0
            parts, failed = proof.follow(some[inside])
            failed.place[:] = -1
            if len(parts):
                waiting.append(parts)
            some = Pieces.joined([some[~inside], failed])
            if not len(some):
                continue
        before = some.upper - some.lower
        thin = np.all(before <= THIN * prover.domain.widths, axis=1)
        proved, bounds, points, scores = prover.prove(
            some, every=bool(proof.tree.kinds.size or thin.any())
        )
        left = np.flatnonzero(~proved)
        if not left.size:
            continue
        trouble = _beaten(proof, points[left])
        if trouble:
            return count, some[:0], trouble
        width, was = (some.upper - some.lower)[left], before[left]
        share = np.prod(
            np.where(was > 0.0, width / np.where(was > 0.0, was, 1.0), 1.0), 1
        )
        again = share < CLIPPED_SHARE
        if again.any():
            waiting.append(some[left[again]])
        left = left[~again]
        if not left.size:
            continue
        part, wanted = some[left], np.argmax(scores[left], axis=1)
        code = np.where(part.place >= 0, codes[part.place], 0).astype(np.intp)
        advised = code > 0
        halves, can = prover.split(part, np.where(advised, code - 1, wanted))
        if not can.all():  # the advice does not fit: split what is widest
            widths = (part.upper - part.lower) / (
                prover.domain.widths + np.finfo(float).tiny
            )
            inputs = np.where(can, np.where(advised, code - 1, wanted),
                              np.argmax(widths, axis=1))  # fmt: skip
            halves, can = prover.split(part, inputs)
            if not can.all():
                i = int(np.argmin(can))
                bound = proof.sign * float(bounds[left][i])
                return (
                    count,
                    some[:0],
                    (
                        f"The piece from {part.lower[i].tolist()} to "
                        f"{part.upper[i].tolist()} cannot be split, and the bound of "
                        f"{proof.words} there is {bound!r}, not {proof.claimed!r}."
                    ),
                )
        first = np.where(advised, 2 * proof.ranks[part.place] - 1, -1)
        halves.place = np.concatenate([first, np.where(advised, first + 1, -1)])
        waiting.append(halves)
    rest = Pieces.joined(waiting) if waiting else pieces[:0]
    return count, rest, ""


def _beaten(proof: _Proof, points: Array) -> str:
    """A point that counts, if one of these does: then the claim is wrong."""
    prover = proof.prover
    values, errors = prover.values(points)
    above = np.all(values - errors > np.array(prover.levels)[:, None], axis=0)
    for i in np.flatnonzero(above).tolist():
        if prover.domain.contains(points[i]):
            return (
                f"The bound {proof.claimed!r} of {proof.words} is wrong: the feasible "
                f"input {points[i].tolist()} has the value "
                f"{proof.sign * float(values[0, i])!r}."
            )
    return ""


def _expect_point(claim: Certificate, prover: Prover) -> None:
    """Raise if the point is not what the claim says."""
    if claim.x is None:
        return
    domain, sign = claim.problem.domain, _sign(claim)
    if claim.x.shape != domain.lower.shape or not domain.contains(claim.x):
        raise _Failed("The point is not in the feasible set.")
    values, errors = prover.values(claim.x[None])
    found, error = float(values[0, 0]), float(errors[0, 0])
    # The value claimed was rounded by another forward pass.
    if not abs(sign * claim.value - found) <= 2.0 * error:
        raise _Failed(
            f"The point has the value {sign * found!r}, and the certificate claims "
            f"{claim.value!r}."
        )
    if found - error > prover.levels[0]:
        raise _Failed(f"The point itself is better than the bound {claim.bound!r}.")
    both = zip(claim.problem.limits, claim.slack, strict=True)
    texts = [shown(limit.text) for limit, slack in both for _ in slack]
    for k, text in enumerate(texts, start=1):
        if not float(values[k, 0] + errors[k, 0]) > prover.levels[k]:
            raise _Failed(f"The point does not meet {text}.")


def _proved(claim: Certificate) -> str:
    if claim.x is None and not np.isfinite(claim.bound):
        return "No input is feasible."
    way = "exceed" if claim.problem.sense == "max" else "fall below"
    found = (
        "" if claim.x is None else f"The point has the value {claim.value:.8g}, and "
    )
    return (
        f"{found}{'no' if found else 'No'} feasible input can {way} {claim.bound:.8g}."
    )


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
