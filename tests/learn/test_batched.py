from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ennopt.learn.batched import (
    EPSILON,
    FIRST_DECAY,
    SECOND_DECAY,
    Lesson,
    learn,
)
from ennopt.network import Network


def lesson(seed, *, rows=40, widths=(5, 4), **changes):
    rng = np.random.default_rng(seed)
    x, x_held = rng.random((rows, 2)), rng.random((15, 2))

    def target(points):
        return np.abs(points[:, 0] - 0.4) + points[:, 1] ** 2

    whole = Lesson(
        x, target(x), x_held, target(x_held), widths, 1e-2, 8, 30, 10,
        np.random.SeedSequence(seed),
    )  # fmt: skip
    return replace(whole, **changes)


def same(a: Network, b: Network) -> bool:
    pairs = zip((*a.weights, *a.biases), (*b.weights, *b.biases), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def initial_network(one: Lesson) -> tuple[Network, np.random.Generator]:
    """Glorot's weights drawn as the lesson's stream yields them."""
    rng = np.random.default_rng(one.stream)
    sizes = (one.x.shape[1], *one.widths, 1)
    weights = []
    for n, m in pairwise(sizes):
        limit = np.sqrt(6 / (n + m))
        weights.append(rng.uniform(-limit, limit, (n, m)).T)
    return Network(tuple(weights), tuple(np.zeros(m) for m in sizes[1:])), rng


def flat(network: Network) -> np.ndarray:
    return np.concatenate([a.ravel() for a in (*network.weights, *network.biases)])


def shaped(numbers: np.ndarray, like: Network) -> Network:
    parts, start = [], 0
    for a in (*like.weights, *like.biases):
        parts.append(numbers[start : start + a.size].reshape(a.shape))
        start += a.size
    cut = len(like.weights)
    return Network(tuple(parts[:cut]), tuple(parts[cut:]))


@pytest.mark.parametrize(("seed", "widths"), [(0, (6,)), (1, (6,)), (2, (5, 4))])
def test_steps_are_those_of_adam_with_numerical_gradients(seed, widths):
    one = lesson(seed, rows=16, max_epochs=3, widths=widths)
    network, rng = initial_network(one)
    theta = flat(network)
    m, v, t = np.zeros_like(theta), np.zeros_like(theta), 0

    def loss(numbers, x, y):
        return np.mean((shaped(numbers, network)(x)[:, 0] - y) ** 2)

    best, best_error = theta, np.inf
    for _ in range(one.max_epochs):
        order = rng.permutation(len(one.x))
        for begin in range(0, len(order), one.batch_size):
            rows = order[begin : begin + one.batch_size]
            x, y = one.x[rows], one.y[rows]
            steps = 1e-6 * np.eye(theta.size)
            g = np.array(
                [(loss(theta + s, x, y) - loss(theta - s, x, y)) / 2e-6 for s in steps]
            )
            t += 1
            m = FIRST_DECAY * m + (1 - FIRST_DECAY) * g
            v = SECOND_DECAY * v + (1 - SECOND_DECAY) * g**2
            m_hat, v_hat = m / (1 - FIRST_DECAY**t), v / (1 - SECOND_DECAY**t)
            theta = theta - one.learning_rate * m_hat / (np.sqrt(v_hat) + EPSILON)
        error = loss(theta, one.x_held, one.y_held)
        if error < best_error:
            best, best_error = theta, error
    learned = learn([one])[0]
    assert np.allclose(flat(learned.network), best, atol=2e-4)
    assert learned.held_error == pytest.approx(best_error, abs=1e-4)


def test_a_network_does_not_depend_on_what_it_is_stacked_with():
    lessons = [lesson(s, learning_rate=0.003 * (s + 1)) for s in range(7)]
    lessons.insert(3, lesson(9, widths=(3,)))  # of another shape
    together = learn(lessons)
    for one, stacked in zip(lessons, together, strict=True):
        alone = learn([one])[0]
        assert same(alone.network, stacked.network)
        assert alone.epochs == stacked.epochs
        assert alone.held_error == stacked.held_error


def test_large_stacks_are_cut_without_a_change(monkeypatch):
    lessons = [lesson(s, max_epochs=4) for s in range(5)]
    whole = learn(lessons)
    monkeypatch.setattr("ennopt.learn.batched.MAX_STACK", 2)
    for a, b in zip(whole, learn(lessons), strict=True):
        assert same(a.network, b.network)


def test_the_best_epoch_is_kept():
    # A large learning rate makes the error go up and down.
    for learned, one in ((learn([o])[0], o) for o in map(restless, range(5))):
        residuals = learned.network(one.x_held)[:, 0] - one.y_held
        assert np.mean(residuals**2) == pytest.approx(learned.held_error, rel=1e-4)
        assert learned.epochs < one.max_epochs
        longer = learn([replace(one, max_epochs=learned.epochs - one.patience)])[0]
        assert same(longer.network, learned.network)


def restless(seed):
    return lesson(seed, learning_rate=0.1, max_epochs=400, patience=5)


def test_training_that_diverges_ends_with_a_finite_network():
    with np.errstate(all="ignore"):
        learned = learn([lesson(0, learning_rate=1e30)])[0]
    assert learned.epochs == 1
    assert learned.held_error == np.inf
    assert np.isfinite(flat(learned.network)).all()


def test_a_last_batch_may_be_short():
    learned = learn([lesson(1, rows=13, batch_size=8), lesson(2, rows=3)])
    assert all(np.isfinite(one.held_error) for one in learned)


def test_reports_add_up_to_the_number_of_networks():
    shares = []
    learn([restless(s) for s in range(3)], shares.append)
    assert sum(shares) == pytest.approx(3)
    assert len(shares) > 3


def test_networks_learn():
    before = learn([lesson(s, rows=200, max_epochs=1) for s in range(3)])
    after = learn([lesson(s, rows=200, max_epochs=80) for s in range(3)])
    for early, late in zip(before, after, strict=True):
        assert late.held_error < 0.2 * early.held_error
