"""Makes bad files from good ones: what a careless or hostile writer might send."""

import numpy as np

TOKENS = [
    b"0", b"-1", b"1e999", b"nan", b"inf", b"-inf", b"99999999999999999999", b"null",
    b"2147483648", b"4294967296", b"[" * 3000, b"(" * 3000, b"{}", b'""', b"\x00",
    b"\xff", b"\n", b"\r", b"\x1b[2J", b"__class__", b"../../x", b"true", b"1e-320",
]  # fmt: skip
"""Pieces of text that have tripped readers."""


def mutated(rng: np.random.Generator, good: bytes, others: list[bytes]) -> bytes:
    """A file changed in one to four places."""
    data = bytearray(good)
    for _ in range(int(rng.integers(1, 5))):
        size = len(data)
        at = int(rng.integers(size + 1))
        length = int(rng.integers(1, 1 + max(1, min(64, size))))
        kind = int(rng.integers(8))
        if kind == 0 and size:
            data[at % size] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at:at] = data[at : at + length] * int(rng.integers(1, 9))
        elif kind == 3:
            data[at:at] = TOKENS[int(rng.integers(len(TOKENS)))]
        elif kind == 4:
            token = TOKENS[int(rng.integers(len(TOKENS)))]
            data[at : at + len(token)] = token
        elif kind == 5:
            data[at:] = b""
        elif kind == 6 and size:
            number = int(rng.choice([0, 1, 255, 2**31 - 1, 2**32 - 1, 2**63 - 1]))
            data[at : at + 8] = number.to_bytes(8, "little")
        else:
            other = others[int(rng.integers(len(others)))]
            start = int(rng.integers(len(other) + 1))
            data[at : at + length] = other[start : start + length]
    return bytes(data)
