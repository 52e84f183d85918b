"""What a certificate says, and how it is stored.

A certificate claims: on these models and this feasible set, this point has this value,
and no feasible point has a better one than the bound. With it comes the tree of the
search as advice: node by node the input or the neuron that was split. A tree of neurons
has slopes of lines for each leaf, and lemmas before it: bounds of neurons, each with a
tree of its own. The checker makes the pieces itself, so no advice can leave out a part
of the set.

The file is a line ``ennopt certificate 3``, a line with the SHA-256 of all that
follows, a line of JSON (claim, set, fingerprints, lengths), and arrays compressed by
zlib: the trees, for every node, level by level, 0 for a leaf or 1 plus the number of
what was split (an input, or the number of inputs plus a neuron), and the slopes.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.columns import Group
from ennopt.domain import Domain, Rows
from ennopt.domain.regions import NearRows
from ennopt.domain.values import Values
from ennopt.network import Array, Ensemble, frozen
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Risk, Worst
from ennopt.sealed import read_sealed, write_sealed

VERSION = 3
LARGEST_FILE = 2**30
LARGEST_TREE = 2**28
"""Most nodes of a tree that is read."""

LARGEST_SLOPES = 2**29
"""Most slopes of leaves that are read."""

Codes = npt.NDArray[np.unsignedinteger[Any]]
Kinds = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

FLAT, STEEP, CHORD, OWN = 0, 1, 2, 3
"""The slope of a neuron's line on a leaf: zero, its coefficient, that of the line
through both ends of ReLU, or a number that is stated."""

RISKS = {"Worst": Worst, "Cvar": Cvar, "Std": MeanMinusStd, "Mad": MeanMinusMad}


class CertificateError(ValueError):
    """A file is damaged, is no certificate, or belongs to something else."""


class OtherModelError(CertificateError):
    """A certificate is about another model than the one given."""

    def __init__(self, domain: Domain) -> None:
        super().__init__("The certificate belongs to another model.")
        self.domain = domain


class OtherClaimError(CertificateError):
    """A certificate is about another problem than the one it must be about."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"Expected a certificate for your {what}, got one for something else."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Where a search was split, and lines for its leaves.

    Parameters
    ----------
    codes
        Level by level: 0 for a leaf, else 1 plus what was split.
    kinds
        Of the slopes of all neurons on each leaf, (num_leaves, num_neurons), `FLAT` and
        so on; (0, 0) if the checker is to choose them.
    slopes
        Those that are `OWN`, leaf by leaf.
    multiples
        Of the half-spaces of the set on each leaf, (num_leaves, num_half_spaces).
    """

    codes: Codes
    kinds: Kinds = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    slopes: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    multiples: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return (self.codes.size + 1) // 2


@dataclass(frozen=True, slots=True, eq=False)
class Lemma:
    """A bound of a neuron: `sign` times its pre-activation is at most `bound`.

    Parameters
    ----------
    stack, layer, neuron
        Which one.
    sign
        1.0 for an upper bound, -1.0 for a lower one.
    bound
        What is proved.
    tree
        How.
    """

    stack: int
    layer: int
    neuron: int
    sign: float
    bound: float
    tree: Tree


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A claim, and advice for its proof.

    Parameters
    ----------
    problem
        What the claim is about. In a file, ensembles are fingerprints: `read` needs
        them.
    slack
        How far a point may miss each limit on predictions: one number for each limit,
        or one for each member if the limit is on the worst of them.
    x, value
        The point and its value; ``None`` and NaN if no point was found.
    bound
        No feasible point is better; infinitely bad if there is no feasible point.
    tree
        The tree of the search.
    lemmas
        Bounds of neurons that its proof needs, in order.
    """

    problem: Problem
    slack: tuple[Array, ...]
    x: Array | None
    value: float
    bound: float
    tree: Tree
    lemmas: tuple[Lemma, ...] = ()

    def save(self, path: str | Path) -> int:
        """Write the certificate, at once or not at all; returns the number of bytes."""
        trees = [*(lemma.tree for lemma in self.lemmas), self.tree]
        places = self.problem.domain.num_inputs + max(
            [int(tree.codes.max(initial=0)) for tree in trees]
        )
        wide = "<u1" if places < 255 else "<u2" if places < 2**16 - 1 else "<u4"
        arrays = [
            np.concatenate([tree.codes.astype(wide) for tree in trees]),
            np.concatenate([tree.kinds.ravel() for tree in trees]),
            np.concatenate([tree.slopes.astype("<f4") for tree in trees]),
            np.concatenate([tree.multiples.astype("<f4").ravel() for tree in trees]),
        ]
        claim = statement(self.problem) | {
            "slack": [_numbers(slack) for slack in self.slack],
            "x": _numbers(self.x),
            "value": _number(self.value),
            "bound": _number(self.bound),
            "wide": wide,
            "lengths": [int(array.size) for array in arrays],
            "trees": [
                [int(tree.codes.size), *tree.kinds.shape, int(tree.slopes.size),
                 *tree.multiples.shape]
                for tree in trees
            ],
            "lemmas": [
                [lemma.stack, lemma.layer, lemma.neuron, lemma.sign, lemma.bound]
                for lemma in self.lemmas
            ],
        }  # fmt: skip
        packed = zlib.compress(b"".join(array.tobytes() for array in arrays), 6)
        body = json.dumps(claim, allow_nan=False).encode() + b"\n" + packed
        return write_sealed(Path(path), "certificate", VERSION, body)

    @classmethod
    def read(
        cls, path: str | Path, models: Ensemble | Sequence[Ensemble]
    ) -> Certificate:
        """Read a certificate for a model, or several.

        Raises
        ------
        CertificateError
            When the file is no certificate, of another version, damaged, or about
            another model.
        """
        path = Path(path)
        body = read_sealed(
            path, "certificate", VERSION, largest=LARGEST_FILE,
            option="ennopt solve --certificate", error=CertificateError,
        )  # fmt: skip
        text, _, packed = body.partition(b"\n")
        given = [models] if isinstance(models, Ensemble) else list(models)
        known = {fingerprint(model): model for model in given}
        try:
            return _parsed(json.loads(text), packed, known)
        except CertificateError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
            raise CertificateError(
                f"Expected a complete claim, got one that cannot be read ({error}) at "
                f"{path.name}."
            ) from error


def statement(problem: Problem) -> dict[str, Any]:
    """What a claim is about, in plain values: set, objective, limits, fingerprints."""
    models = list(dict.fromkeys(fingerprint(e) for e in ensembles_of(problem)))

    def plain(function: Combination) -> dict[str, Any]:
        terms = [
            [models.index(fingerprint(term.ensemble)), _number(term.factor),
             _numbers(None if term.output is None else np.asarray(term.output)),
             _risk_to_plain(term.risk)]
            for term in function.terms
        ]  # fmt: skip
        return {
            "terms": terms,
            "inputs": _numbers(function.inputs),
            "constant": _number(function.constant),
        }

    return {
        "sense": problem.sense,
        "models": models,
        "main": [models.index(fingerprint(problem.ensemble)),
                 _numbers(None if problem.output is None
                          else np.asarray(problem.output))],
        "goal": plain(problem.goal),
        "limits": [
            [plain(limit.function), _number(limit.least), limit.text, limit.sign]
            for limit in problem.limits
        ],
        "set": _set_to_plain(problem.domain),
        "set_fingerprint": set_fingerprint(problem.domain),
    }  # fmt: skip


def difference(one: Problem, other: Problem | Domain) -> str:
    """What two claims differ in, in a word or two; nothing if they are the same."""
    domain = other.domain if isinstance(other, Problem) else other
    if set_fingerprint(one.domain) != set_fingerprint(domain):
        return "feasible set"
    if not isinstance(other, Problem):
        return ""
    mine, yours = statement(one), statement(other)
    for plain in (mine, yours):  # how a limit was put into words does not count
        plain["limits"] = [entry[:2] for entry in plain["limits"]]
    told = {"goal": "objective", "models": "model or models"}
    for name in ("sense", "goal", "limits", "models"):
        if mine[name] != yours[name]:
            return told.get(name, name)
    return ""


def ensembles_of(problem: Problem) -> list[Ensemble]:
    """All ensembles of a problem, the main one first."""
    terms = (term for function in problem.functions() for term in function.terms)
    return [problem.ensemble, *(term.ensemble for term in terms)]


def _risk_to_plain(risk: Risk | None) -> Any:
    if risk is None:
        return None
    name = next(name for name, kind in RISKS.items() if type(risk) is kind)
    return [name, *(getattr(risk, own.name) for own in fields(risk))]  # type: ignore[arg-type]


def _parsed(claim: Any, packed: bytes, known: dict[str, Ensemble]) -> Certificate:
    domain = _set_from_plain(claim["set"])
    if set_fingerprint(domain) != claim["set_fingerprint"]:
        raise CertificateError(
            "Expected the feasible set that its fingerprint belongs to, got another."
        )
    if claim["sense"] not in ("max", "min"):
        raise CertificateError(f"Expected 'max' or 'min', got {claim['sense']!r:.40}.")
    missing = [name for name in claim["models"] if name not in known]
    if missing:
        raise OtherModelError(domain)
    models = [known[name] for name in claim["models"]]
    at, output = claim["main"]
    limits = tuple(
        Limit(_function(plain, models), _finite(least), str(text), float(sign))
        for plain, least, text, sign in claim["limits"]
    )
    problem = Problem(
        models[at], domain, claim["sense"], None if output is None else _array(output),
        _function(claim["goal"], models), limits,
    )  # fmt: skip
    slack, x = tuple(map(_array, claim["slack"])), claim["x"]
    good = all(own.ndim == 1 and own.size and np.all(own >= 0.0) for own in slack)
    if len(slack) != len(limits) or not good:
        raise CertificateError("Expected a slack of zero or more for each limit.")
    trees = _trees(claim, packed)
    lemmas = claim["lemmas"]
    if len(trees) != len(lemmas) + 1:
        raise CertificateError("Expected a tree for each lemma and one for the claim.")
    return Certificate(
        problem=problem, slack=slack, x=None if x is None else _array(x),
        value=_float(claim["value"]), bound=_float(claim["bound"]), tree=trees[-1],
        lemmas=tuple(
            Lemma(int(stack), int(layer), int(j), float(sign), _finite(bound), tree)
            for (stack, layer, j, sign, bound), tree in zip(
                lemmas, trees[:-1], strict=True)
        ),
    )  # fmt: skip


def _function(plain: Any, models: list[Ensemble]) -> Combination:
    terms = []
    for at, factor, output, risk in plain["terms"]:
        made = None if risk is None else RISKS[risk[0]](*map(_finite, risk[1:]))
        vector = None if output is None else _array(output)
        terms.append(Term(models[at], _finite(factor), vector, made))
    return Combination(
        tuple(terms), _array(plain["inputs"]), _finite(plain["constant"])
    )


def _trees(claim: Any, packed: bytes) -> list[Tree]:
    """All trees; nothing is unpacked beyond what the lengths say."""
    lengths, shapes = claim["lengths"], claim["trees"]
    width = {"<u1": 1, "<u2": 2, "<u4": 4}[claim["wide"]]
    most = (LARGEST_TREE, LARGEST_SLOPES, LARGEST_SLOPES, LARGEST_SLOPES)
    for length, largest in zip(lengths, most, strict=True):
        if not (isinstance(length, int) and 0 <= length <= largest):
            raise CertificateError(
                f"Expected arrays of at most {largest:,} numbers, got {length!r:.40}."
            )
    sizes = [
        length * each for length, each in zip(lengths, (width, 1, 4, 4), strict=True)
    ]
    plain = zlib.decompressobj().decompress(packed, sum(sizes) + 1)
    if len(plain) != sum(sizes):
        raise CertificateError("Expected a complete tree, got one with pieces missing.")
    arrays, start = [], 0
    for size, kind in zip(sizes, (claim["wide"], "u1", "<f4", "<f4"), strict=True):
        arrays.append(
            np.frombuffer(plain, kind, size // np.dtype(kind).itemsize, start)
        )
        start += size
    found, at = [], [0, 0, 0, 0]
    for nodes, leaves, neurons, slopes, rows, half_spaces in shapes:
        counts = nodes, leaves * neurons, slopes, rows * half_spaces
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise CertificateError(f"Expected lengths of a tree, got {counts!r:.60}.")
        parts = [
            array[i : i + n] for array, i, n in zip(arrays, at, counts, strict=True)
        ]
        at = [i + count for i, count in zip(at, counts, strict=True)]
        _expect_tree(parts[0], nodes)
        kinds = parts[1].reshape(leaves, neurons)
        if (leaves, rows) != (0, 0) and (leaves, rows) != (((nodes + 1) // 2),) * 2:
            raise CertificateError("Expected slopes for each leaf, or for none.")
        if np.any(kinds > OWN) or np.count_nonzero(kinds == OWN) != slopes:
            raise CertificateError("Expected a slope for each neuron that has its own.")
        for numbers in parts[2:]:
            if not np.isfinite(numbers).all():
                raise CertificateError("Expected finite slopes and multiples.")
        found.append(
            Tree(parts[0], kinds, parts[2], parts[3].reshape(rows, half_spaces))
        )
    if at != list(lengths):
        raise CertificateError("Expected lengths that add up, got others.")
    return found


def _expect_tree(codes: Codes, nodes: int) -> None:
    # In a complete tree every split has two nodes more, and none come from nowhere.
    if nodes < 1 or codes.size != nodes or 1 + 2 * np.count_nonzero(codes) != nodes:
        raise CertificateError(
            f"Expected a complete tree of {nodes:,} nodes, got one with pieces missing."
        )
    ranks = np.cumsum(codes > 0)
    if nodes > 1 and np.any(2 * ranks[:-1] < np.arange(1, nodes)):
        raise CertificateError("Expected a tree, got nodes that no split made.")


def fingerprint(ensemble: Ensemble) -> str:
    """SHA-256 of what an ensemble computes: shapes, activations and all numbers."""
    made = hashlib.sha256(b"ennopt ensemble 1")
    made.update(ensemble.weights.tobytes())
    for member in ensemble.members:
        made.update(repr([w.shape for w in member.weights]).encode())
        made.update(repr([kind.name for kind in member.activations]).encode())
        for w, b in member.layers():
            made.update(w.tobytes() + b.tobytes())
    return made.hexdigest()


def set_fingerprint(domain: Domain) -> str:
    """SHA-256 of a feasible set: all that decides which points are in it."""
    plain = _set_to_plain(domain)
    del plain["names"], plain["groups"]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


# Numbers in JSON: exact, and infinities as text.


def _number(number: float) -> float | str:
    return float(number) if math.isfinite(number) else repr(float(number))


def _float(number: Any) -> float:
    if isinstance(number, str) and number in ("inf", "-inf", "nan"):
        return float(number)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise CertificateError(f"Expected a number, got {number!r:.40}.")
    return float(number)


def _finite(number: Any) -> float:
    found = _float(number)
    if not math.isfinite(found):
        raise CertificateError(f"Expected a finite number, got {number!r:.40}.")
    return found


def _numbers(array: Array | None) -> Any:
    if array is None:
        return None
    flat = [_number(number) for number in np.ravel(array).tolist()]
    width = array.shape[-1]
    if array.ndim == 1:
        return flat
    return [flat[k : k + width] for k in range(0, len(flat), width)]


def _array(numbers: Any) -> Array:
    if not isinstance(numbers, list):
        raise CertificateError(f"Expected a list of numbers, got {numbers!r:.40}.")
    if numbers and isinstance(numbers[0], list):
        return frozen([[_float(number) for number in row] for row in numbers])
    return frozen([_float(number) for number in numbers])


def _set_to_plain(domain: Domain) -> dict[str, Any]:
    linear = domain.linear
    return {
        "names": list(domain.names),
        "lower": _numbers(domain.lower),
        "upper": _numbers(domain.upper),
        "matrix": _numbers(domain.rows.matrix),
        "least": _numbers(domain.rows.least),
        "most": _numbers(domain.rows.most),
        "linear": [_numbers(a) for a in (linear.matrix, linear.least, linear.most)],
        "slack": _numbers(domain.slack),
        "whole": [bool(flag) for flag in domain.values.whole],
        "lists": [_numbers(entry) for entry in domain.values.lists],
        "groups": [
            [str(g.name), list(g.inputs), [str(level) for level in g.levels],
             None if g.base is None else str(g.base)]
            for g in domain.groups
        ],
        "regions": [[_numbers(r.lower), _numbers(r.upper), r.count]
                    for r in domain.regions],
    }  # fmt: skip


def _set_from_plain(plain: Any) -> Domain:
    lower = _array(plain["lower"])
    d = lower.size
    matrix = _array(plain["matrix"]).reshape(-1, d)
    rows = Rows(matrix, _array(plain["least"]), _array(plain["most"]))
    lists = tuple(None if entry is None else _array(entry) for entry in plain["lists"])
    groups = tuple(
        Group(str(name), tuple(int(j) for j in inputs), tuple(levels), base)
        for name, inputs, levels, base in plain["groups"]
    )
    if any(not 0 <= j < d for group in groups for j in group.inputs):
        raise CertificateError("Expected categories of inputs that there are.")
    regions = tuple(
        NearRows(_array(low), _array(high), int(count))
        for low, high, count in plain["regions"]
    )
    names = tuple(str(name) for name in plain["names"])
    found = Domain(
        lower, _array(plain["upper"]), names, rows,
        Values(np.array(plain["whole"], dtype=bool), lists), groups, regions,
        slack=_array(plain["slack"]),
    )  # fmt: skip
    # A part of a set keeps the slack of the whole. Nothing has less than its own.
    own = found.linear.slack(found.lower, found.upper)
    if found.slack.shape != own.shape or not np.all(found.slack >= own):
        raise CertificateError("Expected the slack of its constraints, got less.")
    return found
