"""A constant that the kernel and its specification share has one name and one value."""

import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

KERNEL = Path(__file__).parents[2] / "src" / "kernel"
ROOMS = ("engine", "bounds", "activations")
DECLARED = re.compile(r"constexpr\s+[\w:]+\s+(k[A-Z][^;]*);")
ENTRY = re.compile(r"(k[A-Z]\w*)(?:\[\])?\s*=\s*(\{[^}]*\}|[^,]+)")
NUMBER = re.compile(r"0x1p-\d+|[\d.]+(?:e-?\d+)?")

ALONE = {
    "lanes and memory": {"kTile", "kWide", "kLanes", "kMostLanes", "kChunk",
                         "kMostHalfSpaces", "kDoubles"},
    "what a template is compiled for": {"kSmooth", "kSeveral", "kIsSingle"},
    "float32, which the specification computes in float64":
        {"kLargestSingle", "kLeastSlopeSingle", "kTie", "kLoosest", "kSmallShare",
         "kClose", "kCloseNoise"},
    "NumPy has a name for it": {"kInfinity", "kRoot2", "kRoot2Pi"},
    "made of other constants": {"kUlps", "kAll"},
    "pivots, which HiGHS, the specification of programs, has not":
        {"kSingular", "kPause", "kLeanRow", "kPivotsPerItem", "kMostEquations"},
    "the specification separates points at once, and keeps no row that is free":
        {"kLeafRounds", "kRootWaits", "kLimitMissed", "kNothingHigh"},
    "ascents from a node, of which nothing proved depends": {"kMostSteps"},
}  # fmt: skip
"""Constants of C++ only, and why."""


def specified():
    """Values by name of the constants in the rooms that specify the kernel."""
    found = {}
    for room in ROOMS:
        package = importlib.import_module(f"ennopt.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            scope = vars(importlib.import_module(f"ennopt.{room}.{module.name}"))
            for name, value in scope.items():
                if name.isupper() and isinstance(value, int | float | tuple):
                    found.setdefault(name, set()).add(value)
    return found


def compiled():
    """Pairs of the name and the text of every constant in C++."""
    for path in sorted([*KERNEL.glob("*.hpp"), *KERNEL.glob("*.cpp")]):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for declaration in DECLARED.findall(text):
            yield from ENTRY.findall(declaration)


OWN = set().union(*ALONE.values())
SHARED = sorted({pair for pair in compiled() if pair[0] not in OWN})


@pytest.mark.parametrize(("name", "text"), SHARED)
def test_both_sides_have_the_same_constant(name, text):
    words = re.findall(r"[A-Z][a-z0-9]*", name[1:])
    numbers = [float.fromhex(n) if "x" in n else float(n) for n in NUMBER.findall(text)]
    (value,) = specified()["_".join(words).upper()]  # one meaning: one value
    np.testing.assert_allclose(np.atleast_1d(value), numbers, rtol=1e-15)


def test_every_constant_was_seen():
    names = {name for name, _ in compiled()}
    assert names >= OWN
    assert len(SHARED) > 25
