"""What a certificate says, and how it is stored.

A certificate claims: on this model and feasible set, this point has this value, and no
feasible point has a better one than the bound. With it comes the tree of the search as
advice: node by node the input that was split. The checker makes the pieces itself, so
no advice can leave out a part of the set.

The file is a line ``ennopt certificate 1``, a line with the SHA-256 of all that
follows, a line of JSON (claim, set, fingerprints), and the tree: for every node, level
by level, 0 for a leaf or 1 plus the number of the input, in one byte (two for more than
254 inputs), compressed by zlib.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ennopt.columns import Group
from ennopt.domain import Domain, Rows
from ennopt.domain.regions import NearRows
from ennopt.domain.values import Values
from ennopt.network import Array, Ensemble, frozen
from ennopt.sealed import read_sealed, write_sealed

VERSION = 1
LARGEST_FILE = 2**30
LARGEST_TREE = 2**28
"""Most nodes of a tree that is read."""

Codes = npt.NDArray[np.unsignedinteger[Any]]


class CertificateError(ValueError):
    """A file is damaged, is no certificate, or belongs to something else."""


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A claim, and advice for its proof.

    Parameters
    ----------
    sense
        ``"max"`` or ``"min"``.
    output
        Coefficients of the outputs, ``None`` for the only one.
    domain
        The feasible set.
    model
        Fingerprint of the ensemble; see `fingerprint`.
    x, value
        The point and its value; ``None`` and NaN if no point was found.
    bound
        No feasible point is better; infinitely bad if there is no feasible point.
    codes
        The tree, level by level: 0 for a leaf, else 1 plus the input that was split.
    """

    sense: Literal["max", "min"]
    output: Array | None
    domain: Domain
    model: str
    x: Array | None
    value: float
    bound: float
    codes: Codes

    def save(self, path: str | Path) -> int:
        """Write the certificate, at once or not at all; returns the number of bytes."""
        wide = np.uint8 if self.domain.num_inputs < 255 else np.dtype("<u2")
        tree = zlib.compress(self.codes.astype(wide).tobytes(), 6)
        claim = {
            "sense": self.sense,
            "output": _numbers(self.output),
            "model": self.model,
            "set": _set_to_plain(self.domain),
            "set_fingerprint": set_fingerprint(self.domain),
            "x": _numbers(self.x),
            "value": _number(self.value),
            "bound": _number(self.bound),
            "nodes": int(self.codes.size),
        }
        body = json.dumps(claim, allow_nan=False).encode() + b"\n" + tree
        return write_sealed(Path(path), "certificate", VERSION, body)

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate.

        Raises
        ------
        CertificateError
            When the file is no certificate, of another version, or damaged.
        """
        path = Path(path)
        body = read_sealed(
            path, "certificate", VERSION, largest=LARGEST_FILE,
            option="ennopt solve --certificate", error=CertificateError,
        )  # fmt: skip
        text, _, tree = body.partition(b"\n")
        try:
            return _parsed(json.loads(text), tree)
        except CertificateError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
            raise CertificateError(
                f"Expected a complete claim, got one that cannot be read ({error}) at "
                f"{path.name}."
            ) from error


def _parsed(claim: Any, tree: bytes) -> Certificate:
    domain = _set_from_plain(claim["set"])
    if set_fingerprint(domain) != claim["set_fingerprint"]:
        raise CertificateError(
            "Expected the feasible set that its fingerprint belongs to, got another."
        )
    if claim["sense"] not in ("max", "min"):
        raise CertificateError(f"Expected 'max' or 'min', got {claim['sense']!r:.40}.")
    nodes, x, output = claim["nodes"], claim["x"], claim["output"]
    if not (isinstance(nodes, int) and 1 <= nodes <= LARGEST_TREE):
        raise CertificateError(
            f"Expected a tree of 1 to {LARGEST_TREE:,} nodes, got {nodes!r:.40}."
        )
    codes = _tree(tree, nodes, 1 if domain.num_inputs < 255 else 2)
    # In a complete tree every split has two nodes more, and none come from nowhere.
    if codes.size != nodes or 1 + 2 * int(np.count_nonzero(codes)) != nodes:
        raise CertificateError(
            f"Expected a complete tree of {nodes:,} nodes, got one with pieces missing."
        )
    ranks = np.cumsum(codes > 0)
    if nodes > 1 and np.any(2 * ranks[:-1] < np.arange(1, nodes)):
        raise CertificateError("Expected a tree, got nodes that no split made.")
    if int(codes.max()) > domain.num_inputs:
        raise CertificateError(
            f"Expected splits of {domain.num_inputs} inputs, got input "
            f"{int(codes.max()) - 1}."
        )
    return Certificate(
        sense=claim["sense"],
        output=None if output is None else _array(output),
        domain=domain,
        model=str(claim["model"]),
        x=None if x is None else _array(x),
        value=_float(claim["value"]),
        bound=_float(claim["bound"]),
        codes=codes,
    )


def _tree(packed: bytes, nodes: int, width: int) -> Codes:
    """The codes of a tree; no more than one too many, however much is packed."""
    plain = zlib.decompressobj().decompress(packed, (nodes + 1) * width)
    whole = plain[: len(plain) // width * width]
    return np.frombuffer(whole, dtype=np.uint8 if width == 1 else np.dtype("<u2"))


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
