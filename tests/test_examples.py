"""The examples about feasible sets end with proofs, and their answers can be made."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch):
    """The names that an example ends with; it runs in its own folder."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(EXAMPLES)
    yield lambda name: runpy.run_path(str(EXAMPLES / name))
    pyplot.close("all")


def test_the_careful_mix_can_be_made_and_the_naive_one_cannot(example, capsys):
    told = example("concrete.py")
    naive, careful, mixes = told["naive"], told["careful"], told["mixes"]
    spreads = mixes.x.std(axis=0)

    def close(x):
        return np.sum(np.all(np.abs(mixes.x - x) <= 0.26 * spreads + 0.5, axis=1))

    assert naive.proved
    assert naive.value > 1.5 * mixes.y.max()  # too good to be true
    assert abs(naive.x[:7].sum() - 2400) > 100
    assert close(naive.x) == 0
    assert careful.proved
    assert careful.x[:7].sum() == pytest.approx(2400, abs=1e-4)
    assert careful.x[7] == int(careful.x[7])
    assert close(careful.x) >= 3
    assert careful.value < mixes.y.max()
    assert "warning" in capsys.readouterr().out


def test_the_recipe_is_the_best_of_all_choices_of_levels(example, capsys):
    told = example("recipe.py")
    model, answer, table = told["model"], told["answer"], told["table"]
    assert answer.proved
    own = model.predict(pd.DataFrame([answer.inputs]))[0]
    assert own == pytest.approx(answer.value, rel=1e-12)
    assert answer.inputs["grade"] in ("32.5", "42.5")
    assert answer.inputs["cement"] + 2 * answer.inputs["ash"] <= 520 + 1e-6
    rng = np.random.default_rng(1)
    shares = rng.random((500, 3))
    low, high = table.min(), table.max()
    for grade, additive in itertools.product(
        ("32.5", "42.5"), sorted(set(table["additive"]))
    ):
        points = pd.DataFrame({"grade": grade, "additive": additive}, index=range(500))
        for j, name in enumerate(("cement", "ash", "dose")):
            points[name] = low[name] + shares[:, j] * (high[name] - low[name])
        points = points[points["cement"] + 2 * points["ash"] <= 520]
        assert model.predict(points).max() <= answer.bound
    assert "additive" in capsys.readouterr().out


def test_the_cheapest_mix_reaches_50_mpa_by_every_member(example, capsys):
    told = example("least_cost.py")
    answer, prices = told["answer"], told["PRICES"]
    problem = answer.asked.problem
    assert answer.proved
    assert min(answer.member_values) >= 50 - 1e-6
    assert answer.value == pytest.approx(
        sum(price * answer.inputs[name] for name, price in prices.items())
    )
    assert sum(answer.inputs[name] for name in prices) == pytest.approx(2400, abs=1e-4)
    assert answer.inputs["age"] == int(answer.inputs["age"]) <= 28
    assert problem.domain.contains(answer.x)
    # Feasible points around the answer, and elsewhere, are not cheaper.
    rng = np.random.default_rng(0)
    near = answer.x + rng.normal(0, 0.02, (2000, 8)) * problem.domain.widths
    points = np.concatenate(
        [problem.domain.repair(near), problem.domain.sample(2000, rng)]
    )
    points = points[problem.domain.feasible(points)]
    members = np.stack([member(points)[:, 0] for member in problem.ensemble.members])
    strong = points[members.min(axis=0) >= 50]
    assert len(strong) > 20
    assert problem.values(strong).min() >= answer.bound
    assert "strength (the worst member) >= 50: at its limit" in capsys.readouterr().out


def test_every_example_has_a_place_in_the_gallery():
    """`make docs` runs them all; this one looks at their heads."""
    order = runpy.run_path(str(EXAMPLES.parent / "docs" / "gallery_order.py"))["STORY"]
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files <= set(order)
    assert len(files) >= 10
    for name in files:
        title, line, *_ = (EXAMPLES / name).read_text().split("\n")[1:]
        assert line == "=" * len(title), name


def test_every_point_of_the_front_is_proved_and_none_beats_another(example):
    front = example("pareto.py")["front"]
    costs, strengths = front.values.T
    assert front.proved and len(costs) == 5
    assert np.all(np.diff(costs) > 0) and np.all(np.diff(strengths) > 0)
    for point in front.points:
        assert min(point.result.member_values) == pytest.approx(point.second)
        assert not front.excludes(point.first, point.second)
