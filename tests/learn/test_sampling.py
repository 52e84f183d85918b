import numpy as np
import pytest

from ennopt.learn.functions import FUNCTIONS, PEAKS, PERM, SPRING
from ennopt.learn.sampling import (
    LatinHypercube,
    MultivariateNormal,
    paper_count,
    problem_table,
    sample,
)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda f: f.name)
def test_a_latin_hypercube_has_one_point_in_every_slice(function):
    count = 50
    x = LatinHypercube().draw(function, count, np.random.default_rng(1))
    slices = np.floor((x - function.domain.lower) / function.domain.widths * count)
    for column in slices.T:
        assert sorted(column) == list(range(count))


@pytest.mark.parametrize("sampling", [LatinHypercube(), MultivariateNormal()], ids=repr)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda f: f.name)
def test_samples_lie_in_the_domain_and_repeat_by_seed(sampling, function):
    table = sample(function, sampling=sampling, seed=4)
    assert table.num_rows == paper_count(function.num_inputs)
    assert function.domain.contains(table.x)
    assert np.array_equal(table.y, function(table.x))
    assert table.sense == "min"
    assert sample(function, sampling=sampling, seed=4).sha256 == table.sha256
    assert sample(function, sampling=sampling, seed=5).sha256 != table.sha256


def test_the_paper_counts_its_points():
    counts = [paper_count(f.num_inputs) for f in FUNCTIONS.values()]
    assert counts == [2000, 2000, 3000, 5000]


def test_the_normal_sample_has_the_declared_mean_and_covariance():
    narrow = MultivariateNormal(scale=0.01)  # no point of it leaves the domain
    table = sample(SPRING, sampling=narrow, count=20_000, seed=2)
    covariance = narrow.covariance(SPRING, np.random.default_rng(2))
    assert np.allclose(table.x.mean(axis=0), SPRING.optimizer, atol=5e-3)
    assert np.allclose(np.cov(table.x.T), covariance, atol=1e-3)
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_a_normal_sample_is_boxed_by_its_range_and_a_hypercube_by_the_domain():
    normal = sample(PERM, sampling=MultivariateNormal())
    assert np.array_equal(normal.lower, normal.x.min(axis=0))
    cube = sample(PERM)
    assert np.array_equal(cube.lower, PERM.domain.lower)
    assert np.array_equal(cube.upper, PERM.domain.upper)


def test_a_normal_far_from_the_domain_is_refused(monkeypatch):
    monkeypatch.setattr("ennopt.learn.sampling.REDRAWS", 3)
    with pytest.raises(ValueError, match="Expected a normal distribution that meets"):
        sample(PEAKS, sampling=MultivariateNormal(scale=1e9), count=50)


def test_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match=r"Expected one of peaks, .* got 'rum'"):
        problem_table("rum")
