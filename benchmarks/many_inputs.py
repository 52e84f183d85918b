"""Ensembles of 8 to 60 inputs, for the rule of `method="auto"`.

Writes random ensembles (normal weights, variance 2 / inputs) and ensembles trained on
two function families; `benchmarks/engine.py` then measures them:

    python benchmarks/many_inputs.py out/many-inputs
    python benchmarks/engine.py out/many-inputs --engine neurons \
        --solvers box highs scip --limit 15 --solver-limit 15 --threads 1 --jobs 2 \
        --out benchmarks/many_inputs.md
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from pathlib import Path

import numpy as np

from ennopt.learn.instances import Spec, make
from ennopt.network import Ensemble, Network

INPUTS = (8, 10, 12, 16, 20, 30, 60)
SHAPES = ((1, 1, 40), (1, 2, 20), (2, 2, 10), (3, 2, 10), (3, 2, 20))
"""Members, hidden layers, width."""

TRAINED = (8, 12, 20, 30)
TRAINED_SHAPES = ((1, 2, 20), (3, 2, 10), (3, 2, 20))
FAMILIES = ("styblinski", "rosenbrock")


def network(inputs: int, layers: int, width: int, rng: np.random.Generator) -> Network:
    sizes = (inputs, *(width,) * layers, 1)
    pairs = list(itertools.pairwise(sizes))
    weights = [rng.normal(0, np.sqrt(2 / a), (b, a)) for a, b in pairs]
    return Network(weights, [rng.normal(0, 0.1, b) for _, b in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for d, (e, layers, n) in itertools.product(INPUTS, SHAPES):
        name = f"random{d}_e{e}_L{layers}_n{n}_r0"
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        members = [network(d, layers, n, rng) for _ in range(e)]
        box = {"lower": -np.ones(d), "upper": np.ones(d)}
        Ensemble(members, **box).save(folder / f"{name}.npz")
    make(folder, [
        Spec(f"{family}{d}", e, layers, n, 0, max_epochs=100)
        for family, d, (e, layers, n) in itertools.product(
            FAMILIES, TRAINED, TRAINED_SHAPES
        )
    ])  # fmt: skip


if __name__ == "__main__":
    main()
