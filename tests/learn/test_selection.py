import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import KFold, RandomizedSearchCV

from ennopt.learn.datasets import Table
from ennopt.learn.functions import BEALE
from ennopt.learn.sampling import sample
from ennopt.learn.selection import Space, search
from ennopt.learn.training import Configuration, train

SPACE = Space(
    members=(1, 2), layers=(1, 2), widths=(4, 8), base=Configuration(max_epochs=3)
)


@pytest.fixture(scope="module")
def table():
    return sample(BEALE, count=120, seed=1)


@pytest.fixture(scope="module")
def whole(table):
    return search(table, SPACE, draws=6, folds=3, seed=5)


class Recorder(RegressorMixin, BaseEstimator):
    """A regressor with the parameters of a search; its score tells the fold."""

    def __init__(self, members=1, layers=1, width=1, learning_rate=1.0, batch_size=1):
        self.members, self.layers, self.width = members, layers, width
        self.learning_rate, self.batch_size = learning_rate, batch_size

    def fit(self, x, y):
        self.mean_ = y.mean()
        return self

    def predict(self, x):
        return np.full(len(x), self.mean_)


def test_draws_are_those_of_randomized_search_cv(table):
    theirs = RandomizedSearchCV(
        Recorder(), SPACE.distributions(), n_iter=6, random_state=5,
        cv=KFold(3, shuffle=True, random_state=5),
    ).fit(table.x, table.y)  # fmt: skip
    for ours, params in zip(
        SPACE.draw(6, 5), theirs.cv_results_["params"], strict=True
    ):
        for name, value in params.items():
            assert getattr(ours, name) == value


def test_the_best_come_first_and_four_are_kept(whole):
    scores = [candidate.score for candidate in whole.best()]
    assert len(scores) == 4
    assert scores == sorted(scores)
    assert scores[0] == min(candidate.score for candidate in whole.candidates)
    assert all(len(candidate.rmse) == 3 for candidate in whole.candidates)


def test_an_executor_gives_the_same_answer(table, whole, monkeypatch):
    monkeypatch.setattr("ennopt.learn.selection.WINDOW", 2)
    with ThreadPoolExecutor(2) as executor:
        again = search(table, SPACE, draws=6, folds=3, seed=5, executor=executor)
    assert again == whole


def test_an_interrupted_search_goes_on_where_it_was(table, whole, tmp_path):
    journal = tmp_path / "search.jsonl"
    seen = []

    def stop_after_three(done, total):
        seen.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    options = {"draws": 6, "folds": 3, "seed": 5, "checkpoint": journal}
    with pytest.raises(KeyboardInterrupt):
        search(table, SPACE, report=stop_after_three, **options)
    with journal.open("a") as stream:
        stream.write('{"draw": 3, "rm')  # killed in the middle of a line
    seen.clear()
    again = search(table, SPACE, report=lambda *n: seen.append(n), **options)
    assert seen == [(3, 6), (4, 6), (5, 6), (6, 6)]
    assert again == whole
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["draw"] for line in lines[1:]] == list(range(6))


@pytest.mark.parametrize("change", [{"seed": 6}, {"draws": 7}, {"folds": 4}])
def test_a_checkpoint_of_another_search_is_refused(table, tmp_path, change):
    journal = tmp_path / "search.jsonl"
    options = {"draws": 1, "folds": 3, "seed": 5, "checkpoint": journal}
    search(table, SPACE, **options)
    name = next(iter(change))
    with pytest.raises(ValueError, match=f"got another {name}"):
        search(table, SPACE, **(options | change))
    journal.write_text("not a checkpoint\n")
    with pytest.raises(ValueError, match="Expected a checkpoint of a search"):
        search(table, SPACE, **options)


def test_the_test_rows_are_never_seen(table, whole):
    test = list(train(table, SPACE.base, seed=5).test)
    y = table.y.copy()
    inner = [i for i in test if y.min() < y[i] < y.max()]
    y[inner] = np.mean(y)
    altered = Table(
        table.x, y, table.input_names, table.target, table.lower, table.upper
    )  # fmt: skip
    assert search(altered, SPACE, draws=6, folds=3, seed=5) == whole


def test_too_few_rows_for_the_folds_are_refused():
    small = sample(BEALE, count=8)
    with pytest.raises(ValueError, match="Expected more rows than"):
        search(small, Space(), draws=1)
    with pytest.raises(ValueError, match="Expected draws >= 1 and folds >= 2"):
        search(small, Space(), draws=1, folds=1)
