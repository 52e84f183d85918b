"""The compiled kernel equals its NumPy specification, on every instruction set."""

import ast
from pathlib import Path

import numpy as np
import pytest
from ways import MODULE, SETS, boxes_in, fresh, settings_of

import ennopt
from ennopt.engine.compiled import compile_model
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import ON, BoxLayout, Fate, NodeModel, Nodes, NodeSettings
from ennopt.network import Ensemble
from oracles import (
    DEGENERATE,
    canonical,
    random_case,
    random_domain,
    random_ensemble,
    random_network,
)

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
TOLERANCE = 1e-9


def scale_of(model):
    """Largest magnitude that a sum can meet."""
    return sum(float(sizes[-1][0]) for sizes in model.sizes)


def largest(cut, lower, upper):
    """Largest values of linear functions, constant first, on their boxes."""
    slopes = cut[:, 1:]
    return cut[:, 0] + np.where(slopes > 0, slopes * upper, slopes * lower).sum(axis=1)


def compare(case, settings, name, rows, cutoff, slack, ties):
    """Bound the same nodes both ways; returns the kernel's and the specification's.

    With `ties` a maximum lies on an exact kink: rounding decides slope steps, which
    move no bound, but the majorant and the scores.
    """
    model, compiled = case
    found, told, points, low, high, scores = MODULE.bound_boxes(
        compiled, settings_of(settings), rows, cutoff, name
    )
    mine, nodes = Nodes.unpacked(found, model), Nodes.unpacked(rows, model)
    spec = bound_nodes(model, settings, nodes, cutoff)

    def close(got, wanted, rtol=TOLERANCE, atol=slack):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)

    np.testing.assert_array_equal(told[:, 0] == Fate.CLOSED, spec.fate == Fate.CLOSED)
    alive = spec.fate != Fate.CLOSED
    close(told[:, 4], spec.dropped)
    np.testing.assert_array_equal(told[alive, 0], spec.fate[alive])
    np.testing.assert_array_equal(mine.past[alive], nodes.past[alive])
    for field in ("bound", "lower", "upper"):
        close(getattr(mine, field)[alive], getattr(nodes, field)[alive])
    unstable = (nodes.states < ON) & alive[:, None]
    np.testing.assert_array_equal(mine.states[alive] < ON, unstable[alive])
    np.testing.assert_array_equal(
        np.where(unstable, 0, mine.states)[alive],
        np.where(unstable, 0, nodes.states)[alive],
    )
    close(np.where(unstable, low, 0), np.where(unstable, spec.lower, 0))
    close(np.where(unstable, high, 0), np.where(unstable, spec.upper, 0))
    close(scores[alive], spec.scores[alive], 1e-3 if ties else 1e-6)
    if ties:
        return mine, nodes
    bytes_apart = mine.states.astype(int) - nodes.states
    assert np.abs(bytes_apart[unstable]).max(initial=0) <= 1
    old = Nodes.unpacked(rows, model)
    mine_cut, spec_cut, old_cut = (
        np.column_stack([n.constant, n.cut])[alive] for n in (mine, nodes, old)
    )
    # Of two cuts that are equally high, rounding chooses the one to keep.
    tied = np.any(mine_cut != spec_cut, axis=1) & (
        np.all(mine_cut == old_cut, axis=1) | np.all(spec_cut == old_cut, axis=1)
    )
    close(mine_cut[~tied], spec_cut[~tied])
    box = nodes.lower[alive][tied], nodes.upper[alive][tied]
    close(largest(mine_cut[tied], *box), largest(spec_cut[tied], *box))
    close(points[alive], spec.points[alive])
    close(told[alive, 3], spec.values[alive])
    split = alive & (spec.fate == Fate.SPLIT)
    np.testing.assert_array_equal(told[split, 1], spec.split[split])
    close(told[split, 2], spec.middle[split])
    return mine, nodes


def check(
    ensemble, domain, settings, name, rng, count=19, slack=TOLERANCE, ties=False
):  # fmt: skip
    """Without a cutoff, then on what each of the two leaves to its children."""
    case = (
        NodeModel(canonical(ensemble, domain)),
        compile_model(canonical(ensemble, domain)),
    )
    lower, upper = boxes_in(domain, count, rng)
    rows = fresh(case[0], lower, upper).packed()
    level = float(np.quantile(ensemble(domain.sample(200, rng))[:, 0], 0.9))
    batches = [(rows, -np.inf)]
    for generation in range(3):
        following = []
        for rows, cutoff in batches:
            pair = compare(case, settings, name, rows, cutoff, slack, ties)
            following += [(nodes.packed(), level) for nodes in pair]
        batches = following if generation == 0 else following[:2]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "settings",
    [
        NodeSettings(),
        NodeSettings(max_steps=0),
        NodeSettings(row_slopes=False, vertex_lines=False, output_lines=False),
        NodeSettings(row_slopes=False),
        NodeSettings(vertex_lines=False),
    ],
    ids=["all", "no steps", "plain", "lines", "slopes"],
)
def test_kernel_equals_specification_on_random_shapes(name, settings, rng):
    shapes = [(3, 2, (5, 4)), (2, 5, (7, 6, 5)), (1, 11, (9, 8, 7, 6)), (4, 3, (13,))]
    for members, inputs, widths in shapes:
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=True)
        check(ensemble, random_domain(rng, inputs), settings, name, rng)


@pytest.mark.parametrize("name", SETS)
def test_kernel_equals_specification_on_many_inputs(name, rng):
    settings = NodeSettings()
    for members, inputs, widths in [(2, 17, (5,)), (3, 20, (7, 6)), (1, 33, (6, 5, 4))]:
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=True)
        check(ensemble, random_domain(rng, inputs), settings, name, rng)


@pytest.mark.parametrize("name", SETS)
def test_kernel_equals_specification_on_deep_and_wide_networks(name, rng):
    shapes = [(1, 3, (12,) * 8), (2, 8, (16,) * 6), (1, 12, (70, 40))]
    for members, inputs, widths in shapes:
        ensemble = random_ensemble(rng, members, inputs, widths)
        check(ensemble, random_domain(rng, inputs), NodeSettings(), name, rng, count=9)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_kernel_equals_specification_on_degenerate_ensembles(name, case, rng):
    ensemble, domain = DEGENERATE[case](rng)
    settings = NodeSettings()
    ties = case == "kinks at the bounds"
    check(ensemble, domain, settings, name, rng, count=11, ties=ties)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("scales", [(1e6,), (1e-6,), (1e6, 1e-6)], ids=repr)
def test_kernel_equals_specification_on_huge_and_tiny_weights(name, scales, rng):
    for widths in ((6,), (5, 4)):
        members = [random_network(rng, 3, widths, scale=scale) for scale in scales]
        ensemble, domain = Ensemble((*members, *members[:1])), random_domain(rng, 3)
        slack = TOLERANCE * scale_of(NodeModel(canonical(ensemble, domain)))
        check(ensemble, domain, NodeSettings(), name, rng, slack=slack)


@pytest.mark.parametrize("seed", range(30))
def test_kernel_equals_specification_on_random_cases(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = random_case(rng)
    name = SETS[seed % len(SETS)]
    check(ensemble, domain, NodeSettings(), name, rng, count=11)


@pytest.mark.parametrize("name", SETS)
def test_a_node_is_bounded_alike_whatever_its_neighbours_in_the_lanes(name, rng):
    ensemble, domain = random_ensemble(rng, 3, 4, (8, 7, 6)), random_domain(rng, 4)
    model, compiled = (
        NodeModel(canonical(ensemble, domain)),
        compile_model(canonical(ensemble, domain)),
    )
    lower, upper = boxes_in(domain, 17, rng)
    rows = fresh(model, lower, upper).packed()
    level = float(np.quantile(ensemble(domain.sample(200, rng))[:, 0], 0.9))
    settings = MODULE.Settings()
    together = MODULE.bound_boxes(compiled, settings, rows, level, name)
    for i in range(len(rows)):
        alone = MODULE.bound_boxes(compiled, settings, rows[i : i + 1], level, name)
        if alone[1][0, 0] != Fate.CLOSED:
            np.testing.assert_allclose(alone[5][0], together[5][i], rtol=1e-9)
            np.testing.assert_allclose(
                alone[0][0, :15], together[0][i, :15], rtol=1e-9, atol=1e-12
            )


@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_kernel_and_specification_lay_out_a_box_alike(cuts):
    for inputs, neurons in [(1, 0), (3, 8), (5, 13)]:
        mine = BoxLayout(inputs, neurons, cuts)
        theirs = MODULE.BoxLayout(inputs, neurons, cuts)
        assert mine.stride == theirs.stride
        each = [2 + k * (1 + inputs) + i for k in range(cuts) for i in (0, 1)]
        assert theirs.places() == [*each, mine.lower, mine.upper, mine.states]
    assert BoxLayout(5, 0).stride == 3 + 3 * 5


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_layout_gives_back_what_was_packed(cuts, rng):
    layout = BoxLayout(4, 11, cuts)
    parts = (
        rng.normal(size=(7, 2)), rng.normal(size=(7, cuts, 5)),
        rng.normal(size=(7, 4)), rng.normal(size=(7, 4)),
        rng.integers(0, 256, size=(7, 11)).astype(np.uint8),
    )  # fmt: skip
    rows = layout.pack(*parts)
    assert rows.shape == (7, layout.stride)
    for part, found in zip(parts, layout.unpack(rows), strict=True):
        np.testing.assert_array_equal(part, found)


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_what_the_kernel_has():
    stub = Path(ennopt.__file__).with_name("_kernel.pyi").read_text(encoding="utf-8")
    body = ast.parse(stub).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    assert functions | set(classes) == public(vars(MODULE))
    for name, node in classes.items():
        told = {
            part.name if isinstance(part, ast.FunctionDef) else part.target.id
            for part in node.body
            if isinstance(part, ast.FunctionDef | ast.AnnAssign)
        }
        assert public(told) == public(vars(getattr(MODULE, name))), name
