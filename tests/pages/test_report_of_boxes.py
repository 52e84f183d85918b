"""For two inputs, the report draws the boxes of the search over the surface."""

import numpy as np
import pytest

import ennopt
from ennopt.pages import drawn
from ennopt.pages.render import page
from oracles import random_ensemble


@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("layers", [(12,), (6, 6)])
def test_what_lies_in_no_box_is_no_better_than_the_answer(sense, layers):
    model = random_ensemble(np.random.default_rng(5), 3, 2, layers)
    verb = ennopt.maximize if sense == "max" else ennopt.minimize
    answer = verb(model, (-2, 2), gap=1e-6)
    boxes = answer.asked.boxes
    assert len(boxes) > 1 and np.all(boxes[:, 0] <= boxes[:, 1])
    assert boxes.min() >= -2 and boxes.max() <= 2
    sides = boxes[:, 1] - boxes[:, 0]
    assert sides.prod(axis=1).sum() <= 16 * (1 + 1e-12)  # none lies over another
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 81)] * 2), axis=-1).reshape(-1, 2)
    inside = np.all(
        (grid[:, None] >= boxes[None, :, 0]) & (grid[:, None] <= boxes[None, :, 1]),
        axis=2,
    ).any(axis=1)
    assert inside.any() and not inside.all()
    sign = 1 if sense == "max" else -1
    best = (sign * answer.asked.problem.values(grid[~inside])).max()
    assert best <= sign * answer.bound


def test_the_report_draws_each_box(tmp_path):
    model = random_ensemble(np.random.default_rng(5), 3, 2, (12,))
    answer = ennopt.maximize(model, (-2, 2), gap=1e-6)
    lines = drawn.lines(answer)
    chart = drawn.searched(answer, drawn.planes(answer, lines))
    (path,) = (m.attributes["d"] for m in chart.marks if m.attributes["class"] == "box")
    assert path.count("Z") == len(answer.asked.boxes)
    assert "Where the search had to look closer" in page(answer)


def test_a_certificate_and_a_drawing_hear_the_same_search(tmp_path):
    model = random_ensemble(np.random.default_rng(5), 3, 2, (12,))
    plain = ennopt.maximize(model, (-2, 2), threads=1)
    file = tmp_path / "proof.cert"
    answer = ennopt.maximize(model, (-2, 2), threads=1, certificate=file)
    assert np.array_equal(answer.asked.boxes, plain.asked.boxes)
    assert ennopt.verify(file, model)


def test_other_searches_have_no_boxes():
    three = random_ensemble(np.random.default_rng(5), 2, 3, (5,))
    two = random_ensemble(np.random.default_rng(5), 2, 2, (5,))
    assert ennopt.maximize(three, (-1, 1)).asked.boxes is None
    answer = ennopt.maximize(two, (-1, 1), method="neurons")
    assert answer.asked.boxes is None
    assert "had to look closer" not in page(answer)
