"""Files with a checksum that are written at once or not at all, and digests of values.

A sealed file is a line that says what it is and of which version, a line with the
SHA-256 of all that follows, and the body.
"""

from __future__ import annotations

import enum
import hashlib
import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np


def write_sealed(
    path: Path, kind: str, version: int, *body: bytes | memoryview
) -> int:  # fmt: skip
    """Write a file of all parts of its body; returns the number of its bytes.

    It is written beside its place and moved there when it is on the disk: whatever
    happens, the place has the file as it was or as it is to be.
    """
    check = hashlib.sha256()
    for part in body:
        check.update(part)
    head = _first_line(kind, version) + check.hexdigest().encode() + b"\n"
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            for part in (head, *body):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return len(head) + sum(memoryview(part).nbytes for part in body)


def read_sealed(
    path: Path, kind: str, version: int, *, largest: int, option: str,
    error: type[ValueError],
) -> bytes:  # fmt: skip
    """The body of a file.

    Parameters
    ----------
    path, kind, version
        The file and what it must be.
    largest
        Most bytes.
    option
        What writes such files, for the message.
    error
        What is raised for another or a damaged file.
    """
    size = path.stat().st_size
    if size > largest:
        raise error(
            f"Expected a {kind} of at most {largest:,} bytes, got {size:,} at "
            f"{path.name}."
        )
    data, first = path.read_bytes(), _first_line(kind, version)
    if not data.startswith(first):
        raise error(
            f"Expected a file that begins with '{first.decode().strip()}', got another "
            f"at {path.name}. Give a file that {option} wrote."
        )
    check, _, body = data[len(first) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != check:
        raise error(
            f"Expected an undamaged file, got one whose checksum differs at "
            f"{path.name}. Copy it again; it proves nothing as it is."
        )
    return body


def _first_line(kind: str, version: int) -> bytes:
    return f"ennopt {kind} {version}\n".encode()


def digest(value: Any) -> str:
    """SHA-256 of what a value says: every field, every number to the last bit.

    Examples
    --------
    >>> digest((1.0, np.ones(2))) == digest((1.0, np.ones(2)))
    True
    >>> digest(np.ones(2)) == digest(np.ones((2, 1)))
    False
    """
    made = hashlib.sha256()
    _feed(made, value)
    return made.hexdigest()


def _feed(made: Any, value: Any) -> None:
    made.update(type(value).__name__.encode() + b"(")
    if isinstance(value, np.ndarray):
        made.update(f"{value.dtype.str}{value.shape}".encode())
        made.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, enum.Enum):
        made.update(value.name.encode())
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            made.update(field.name.encode() + b"=")
            _feed(made, getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for entry in value:
            _feed(made, entry)
    elif value is None or isinstance(value, str | bytes | int | float | np.generic):
        made.update(repr(value).encode())
    else:
        raise TypeError(f"Expected plain values, got {type(value).__name__}.")
    made.update(b")")
