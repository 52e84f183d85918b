"""Values, slopes and lines of activations, against arithmetic of 60 digits."""

import math

import mpmath
import numpy as np
import pytest

from ennopt.activations import (
    ACTIVATIONS,
    ELU,
    Lines,
    Mixed,
    ReLU,
    Sigmoid,
    Tanh,
    activation_named,
)
from ennopt.activations.envelope import SLOPE_ERROR
from ennopt.activations.kinds import GELU_CUBIC, GELU_FACTOR
from ennopt.engine.compiled import kernel

KINDS = (*ACTIVATIONS.values(), ELU(0.3))
SMOOTH = [kind for kind in KINDS if not isinstance(kind, ReLU)]


def gelu_tanh(x):
    inner = mpmath.mpf(GELU_FACTOR) * (x + mpmath.mpf(GELU_CUBIC) * x**3)
    return x / (1 + mpmath.exp(-2 * inner))  # the same without cancellation


EXACT = {
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "elu(0.3)": lambda x: x if x > 0 else mpmath.mpf(0.3) * mpmath.expm1(x),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "gelu_tanh": gelu_tanh,
}


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(60):
        yield


def exact(kind, x):
    return EXACT[kind.name](mpmath.mpf(float(x)))


def points(rng, kind):
    """Numbers of every size, and those around which the function changes."""
    special = [0.0, 1e-300, -1e-300, 5e-324, 36.0, -36.0, 38.5, -38.5, 745.0, -745.0]
    special += [b + s for b in kind.bends if math.isfinite(b) for s in (-1e-9, 0, 1e-9)]
    sizes = 10.0 ** rng.uniform(-12, 3.5, 60)
    return np.array([*special, *sizes, *-sizes, *rng.uniform(-6, 6, 80)])


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_values_are_as_exact_as_they_say(kind, rng):
    x = points(rng, kind)
    values = kind.value(x)
    errors = kind.error(x, values)
    for at, value, error in zip(x, values, errors, strict=True):
        assert abs(exact(kind, at) - mpmath.mpf(float(value))) <= mpmath.mpf(error) / 4


@pytest.mark.parametrize("kind", SMOOTH, ids=repr)
def test_slopes_are_derivatives(kind, rng):
    x = points(rng, kind)
    x = x[np.abs(x) > 1e-3] if kind.name.startswith("elu") else x
    for at, slope in zip(x, kind.slope(x), strict=True):
        derivative = mpmath.diff(EXACT[kind.name], mpmath.mpf(float(at)))
        assert abs(derivative - mpmath.mpf(float(slope))) <= SLOPE_ERROR / 4


@pytest.mark.parametrize("kind", SMOOTH, ids=repr)
def test_curvature_changes_its_sign_at_the_bends(kind):
    first, second = kind.bends
    for x, sign in [
        (first - 1e-9, -1), (first + 1e-9, 1), (second - 1e-9, 1), (second + 1e-9, -1)
    ]:  # fmt: skip
        if math.isfinite(x):
            assert sign * mpmath.diff(EXACT[kind.name], mpmath.mpf(x), 2) > 0


def intervals(rng, kind):
    """Random and adversarial: tiny, huge, around bends, of width zero, far away."""
    ends = [(0.0, 0.0), (-1e3, 1e3), (-1e3, -999.0), (999.0, 1e3), (1e3, 1e3),
            (-1e-300, 1e-300), (-1e6, 2.0), (-2.0, 1e6), (-40.0, -30.0), (30.0, 40.0),
            (-1e-8, 0.0), (0.0, 1e-8), (-1e100, 1e100)]  # fmt: skip
    for bend in (*(b for b in kind.bends if math.isfinite(b)), 0.0, -0.75, -1.28):
        for width in (1e-15, 1e-9, 1e-4, 0.1, 3.0, 300.0):
            share = rng.uniform()
            ends.append((bend - share * width, bend + (1.0 - share) * width))
            ends += [(bend, bend + width), (bend - width, bend)]
    middles, widths = rng.normal(0, 3, 60), 10.0 ** rng.uniform(-13, 2, 60)
    ends += list(zip(middles - widths, middles + widths, strict=True))
    return np.array(ends).T


def grid(lower, upper, kind, count):
    inside = [b for b in (*kind.bends, 0.0) if lower <= b <= upper]
    near = inside + [x for b in inside for x in (b - 1e-7, b + 1e-7)]
    spread = np.linspace(lower, upper, count)
    return np.clip(np.array([*spread, *near]), lower, upper)


def by_numpy(kind, lower, upper):
    return kind.lines(lower, upper)


def by_kernel(kind, lower, upper):
    number = [type(k) for k in ACTIVATIONS.values()].index(type(kind))
    alpha = getattr(kind, "alpha", 1.0)
    return Lines(*kernel().lines(number, alpha, lower, upper).T)


WAYS = [
    by_numpy,
    pytest.param(
        by_kernel, marks=pytest.mark.skipif(kernel() is None, reason="not built")
    ),
]


# Lines of ReLU are rounded by what the passes that use them add up anyway.
@pytest.mark.parametrize("kind", SMOOTH, ids=repr)
@pytest.mark.parametrize("way", WAYS)
def test_lines_are_above_and_below(kind, way, rng):
    lower, upper = intervals(rng, kind)
    found = way(kind, lower, upper)
    for i, (a, b) in enumerate(zip(lower, upper, strict=True)):
        low, low_shift, high, high_shift = (
            mpmath.mpf(float(getattr(found, name)[i]))
            for name in ("low", "low_shift", "high", "high_shift")
        )
        for x in grid(a, b, kind, 40):
            value, h = exact(kind, x), mpmath.mpf(float(x))
            assert low * h + low_shift <= value, (a, b, x)
            assert value <= high * h + high_shift, (a, b, x)


@pytest.mark.parametrize("kind", SMOOTH, ids=repr)
def test_lines_hold_for_the_computed_values_too(kind, rng):
    lower, upper = intervals(rng, kind)
    found = kind.lines(lower, upper)
    for share in np.linspace(0.0, 1.0, 400):
        x = np.clip(lower + share * (upper - lower), lower, upper)
        value, slack = kind.value(x), 4e-16 * (np.abs(found.high * x) + 1.0)
        assert np.all(value <= found.high * x + found.high_shift + slack)
        assert np.all(value >= found.low * x + found.low_shift - slack)


@pytest.mark.parametrize("kind", SMOOTH, ids=repr)
@pytest.mark.parametrize("way", WAYS)
def test_lines_close_in_with_the_square_of_the_width(kind, way, rng):
    middle = rng.uniform(-5, 5, 400)
    if kind.name == "elu(0.3)":
        middle = middle[np.abs(middle) > 1.0]  # it has a kink
    for width in (1.0, 0.1, 0.01, 1e-3):
        lower, upper = middle - width / 2, middle + width / 2
        found = way(kind, lower, upper)
        x = np.linspace(lower, upper, 41)
        apart = (found.high - found.low) * x + found.high_shift - found.low_shift
        assert apart.max() <= 0.5 * width**2 + 1e-12


@pytest.mark.parametrize("kind", SMOOTH, ids=repr)
def test_a_line_is_close_to_the_best_one_in_the_middle(kind, rng):
    # The best is the envelope: the least concave function above the curve.
    lower = rng.uniform(-8, 4, 40)
    upper = lower + rng.uniform(0.5, 12, 40)
    at = 0.5 * (lower + upper)
    found = kind.lines(lower, upper)
    for i in range(40):
        x = np.linspace(lower[i], upper[i], 401)
        y = kind.value(x)
        left, right = x <= at[i], x >= at[i]
        a, b = x[left][:, None], x[right][None]
        share = (at[i] - a) / np.where(b > a, b - a, 1.0)
        chords = (1 - share) * y[left][:, None] + share * y[right][None]
        size = 0.02 * (1.0 + upper[i] - lower[i])
        assert found.high[i] * at[i] + found.high_shift[i] <= chords.max() + size
        assert found.low[i] * at[i] + found.low_shift[i] >= chords.min() - size


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_ranges_contain_the_function(kind, rng):
    lower, upper = intervals(rng, kind)
    low, high = kind.range(lower, upper)
    reach = kind.reach(lower, upper)
    for i, (a, b) in enumerate(zip(lower, upper, strict=True)):
        values = [exact(kind, x) for x in grid(a, b, kind, 25)]
        assert mpmath.mpf(low[i]) <= min(values)
        assert max(values) <= mpmath.mpf(high[i])
        assert max(map(abs, values)) <= mpmath.mpf(reach[i])


@pytest.mark.parametrize(
    "kind", [*KINDS, Mixed(((ReLU(), 2), (ELU(0.5), 3)))], ids=repr
)
def test_a_name_is_read_back(kind):
    assert activation_named(kind.name) == kind


@pytest.mark.parametrize("name", ["sine", "", "elu(2.0)", "relu*0", "relu*x", "a*1+"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="Expected"):
        activation_named(name)


def test_a_mixed_layer_is_its_parts_side_by_side(rng):
    parts = ((Tanh(), 3), (ReLU(), 2), (Sigmoid(), 1))
    mixed, x = Mixed(parts), rng.normal(size=(4, 6))
    start = 0
    lines = mixed.lines(x - 1.0, x + 1.0)
    for kind, count in parts:
        own = slice(start, start + count)
        assert np.array_equal(mixed.value(x)[:, own], kind.value(x[:, own]))
        assert np.array_equal(mixed.slope(x)[:, own], kind.slope(x[:, own]))
        alone = kind.lines(x[:, own] - 1.0, x[:, own] + 1.0)
        assert np.array_equal(lines.high[:, own], alone.high)
        assert np.array_equal(lines.low_shift[:, own], alone.low_shift)
        start += count
