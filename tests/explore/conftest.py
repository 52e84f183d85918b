"""Models to explore, and their pages."""

import numpy as np
import pytest
from exploring import NAMES, serving, subject_of

import ennopt
from oracles import random_ensemble


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model of four inputs with 40 rows of data, and one that takes very long."""
    place = tmp_path_factory.mktemp("explore")
    rng = np.random.default_rng(7)
    inner = random_ensemble(rng, 3, 4, (6,))
    ennopt.Ensemble(inner.members, inner.weights, input_names=NAMES).save(
        place / "model.npz"
    )
    plants = rng.integers(0, 2, size=40)
    rows = np.stack(
        [rng.uniform(-1, 1, 40), rng.uniform(0, 5, 40), plants, 1 - plants], axis=1
    )
    lines = [",".join((*NAMES, "strength"))]
    lines += [",".join(f"{float(at)!r}" for at in (*row, row.sum())) for row in rows]
    (place / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    hard = random_ensemble(np.random.default_rng(1), 4, 9, (40, 40))
    ennopt.Ensemble(
        hard.members, hard.weights, lower=np.full(9, -5.0), upper=np.full(9, 5.0)
    ).save(place / "hard.npz")
    return place


@pytest.fixture(scope="session")
def subject(folder):
    return subject_of(folder / "model.npz", str(folder / "rows.csv"), "strength")


@pytest.fixture(scope="session")
def served(subject):
    with serving(subject) as service:
        yield service


@pytest.fixture(scope="session")
def hard(folder):
    """A page for a model whose optimum nobody will wait for."""
    with serving(subject_of(folder / "hard.npz")) as service:
        yield service
