"""Certificates: what is true is verified, what is not never is."""

import ast
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import ennopt
from ennopt import Domain, Ensemble, Network, Problem, Rows, solve, verify
from ennopt.certificate import checker
from ennopt.certificate.checker import check
from ennopt.certificate.core import Model, Prover, functions_of
from ennopt.certificate.record import Certificate, CertificateError, Tree
from ennopt.cli.main import main
from ennopt.domain.regions import NearRows
from ennopt.domain.values import Values
from oracles import random_domain, random_ensemble

ALLOWED = {
    "ennopt.certificate", "ennopt.network", "ennopt.domain", "ennopt.columns",
    "ennopt.problem", "ennopt.risk", "ennopt.weighting", "ennopt.sealed",
}  # fmt: skip
INDEPENDENT = ("core", "lines", "advice", "checker", "record")


def certified(path, ensemble, domain, sense="max", output=None, **limits):
    problem = Problem(ensemble, domain, sense, output)
    answer = solve(problem, "box", certificate=path, threads=1, **limits)
    return answer, Certificate.read(path, ensemble)


def with_codes(claim, codes):
    return replace(claim, tree=Tree(codes))


def on_set(claim, domain):
    return replace(claim, problem=replace(claim.problem, domain=domain))


@pytest.mark.parametrize("module", INDEPENDENT)
def test_the_checker_imports_nothing_of_the_searches(module):
    folder = Path(checker.__file__).parent
    tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            if name.startswith("ennopt"):
                assert ".".join(name.split(".")[:2]) in ALLOWED, name
                assert name != "ennopt.certificate.writer"


SETS = {
    "box": lambda d: {},
    "row": lambda d: {"rows": Rows(np.ones((1, d)), [-0.5], [0.25])},
    "equation": lambda d: {"rows": Rows(np.ones((1, d)), [0.1], [0.1])},
    "whole": lambda d: {"values": Values.of(d, whole=[0])},
    "list": lambda d: {"values": Values.of(d, lists={1: [-0.8, -0.1, 0.3, 0.9]})},
    "near": lambda d: {"regions": (NearRows.rows([[0.2] * d, [-0.5] * d], [0.3] * d),)},
}


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_a_true_claim_is_verified_on_every_kind_of_set(kind, sense, tmp_path, rng):
    path = tmp_path / "proof.cert"
    ensemble = random_ensemble(rng, 2, 3, (6, 5))
    domain = Domain([-1.0] * 3, [1.0] * 3, **SETS[kind](3))
    answer, claim = certified(path, ensemble, domain, sense, gap=1e-3)
    assert answer.status is ennopt.Status.OPTIMAL
    verdict = verify(path, ensemble)
    assert verdict, verdict.reason
    assert abs(claim.bound - answer.value) <= 1.01e-3 * max(abs(answer.value), 0.01)
    assert domain.contains(claim.x)


def wrong(claim, ensemble):
    """The same claim, made wrong in each of several ways."""
    sign = 1.0 if claim.problem.sense == "max" else -1.0
    size = abs(claim.value) + 1e-3
    yield "bound", replace(claim, bound=claim.value - sign * 1e-6 * size)
    yield "far", replace(claim, bound=claim.value - sign * size)
    yield "value", replace(claim, value=claim.value + sign * 1e-9 * size)
    yield "point", replace(claim, x=claim.problem.domain.centre + 1e-3)
    yield "outside", replace(claim, x=claim.problem.domain.upper + 1.0)
    other = ensemble.fold_output(1.001, 0.0)
    problem = replace(claim.problem, ensemble=other, goal=None)
    yield "model", replace(claim, problem=problem)


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_claim_is_never_verified(seed, tmp_path):
    rng = np.random.default_rng(seed)
    ensemble, domain = random_ensemble(rng, 2, 2, (6,)), random_domain(rng, 2)
    _, claim = certified(tmp_path / "a", ensemble, domain, ("max", "min")[seed % 2])
    assert check(claim)
    for what, false in wrong(claim, ensemble):
        assert not check(false), what
    # Without its point the claim is about the bound alone, and still found out.
    alone = replace(claim, x=None, value=float("nan"))
    assert check(alone)
    sign = 1.0 if claim.problem.sense == "max" else -1.0
    low = replace(alone, bound=claim.value - sign * 1e-3 * (abs(claim.value) + 1e-3))
    verdict = check(low)
    assert not verdict
    assert "has the value" in verdict.reason or "pieces" in verdict.reason


def test_a_wider_set_is_found_out(tmp_path):
    line = Ensemble([Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])])
    _, claim = certified(tmp_path / "a", line, Domain([-2.0], [1.0]))
    wider = on_set(claim, Domain([-2.5], [1.0]))
    verdict = check(wider)
    assert not verdict
    assert "[-2.5]" in verdict.reason


def test_the_set_may_be_given_again(tmp_path, rng):
    ensemble = random_ensemble(rng, 2, 3, (6,))
    rows = Rows([[1.0, 1.0, 0.0]], [-0.5], [0.5])
    domain = Domain([-1.0] * 3, [1.0] * 3, rows=rows)
    certified(tmp_path / "a", ensemble, domain)
    assert verify(tmp_path / "a", ensemble, domain)
    for other in (
        Domain([-1.0] * 3, [1.0] * 3),
        Domain([-1.0] * 3, [1.0, 1.0, 1.0 + 1e-15], rows=rows),
        replace(domain, rows=Rows([[1.0, 1.0, 0.0]], [-0.5], [0.25])),
        replace(domain, values=Values.of(3, whole=[2])),
    ):
        with pytest.raises(
            CertificateError, match="Expected a certificate for your feasible set"
        ):
            verify(tmp_path / "a", ensemble, other)


def test_less_slack_than_a_set_has_is_refused(tmp_path, rng):
    ensemble = random_ensemble(rng, 1, 2, (4,))
    domain = Domain([-1] * 2, [1] * 2, rows=Rows([[1.0, 1.0]], [0.0], [0.5]))
    _, claim = certified(tmp_path / "a", ensemble, domain)
    less = on_set(claim, replace(domain, slack=0.5 * domain.slack))
    less.save(tmp_path / "b")
    with pytest.raises(CertificateError, match="slack"):
        Certificate.read(tmp_path / "b", ensemble)


def test_any_advice_proves_or_fails_but_never_lies(tmp_path, rng):
    ensemble = random_ensemble(rng, 2, 3, (6, 5))
    _, claim = certified(tmp_path / "a", ensemble, Domain([-1.0] * 3, [1.0] * 3))
    other = claim.tree.codes.copy()
    splits = np.flatnonzero(other)
    other[splits] = rng.integers(1, 4, size=splits.size)
    assert check(with_codes(claim, other))
    assert check(with_codes(claim, np.zeros(1, np.uint8)))
    false = replace(with_codes(claim, other), x=None, bound=claim.value - 0.1)
    assert not check(false)


def test_a_damaged_file_is_told_apart(tmp_path, rng):
    path = tmp_path / "proof.cert"
    ensemble = random_ensemble(rng, 2, 3, (6, 5))
    certified(path, ensemble, Domain([-1.0] * 3, [1.0] * 3))
    whole = path.read_bytes()
    for at in rng.integers(22, len(whole), size=40):
        broken = bytearray(whole)
        broken[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(CertificateError, match=r"checksum|begins"):
            verify(path, ensemble)
    for length in (0, 10, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CertificateError, match="Expected"):
            verify(path, ensemble)


@pytest.mark.parametrize("codes", [[1], [1, 0], [0, 0, 0], [0, 1, 0]])
def test_a_tree_with_missing_pieces_is_refused(codes, tmp_path):
    line = Ensemble([Network([[[1.0]]], [[0.0]])])
    _, claim = certified(tmp_path / "a", line, Domain([-2.0], [1.0]))
    with_codes(claim, np.array(codes, np.uint8)).save(tmp_path / "b")
    with pytest.raises(CertificateError, match="Expected"):
        Certificate.read(tmp_path / "b", line)
    nowhere = check(with_codes(claim, np.array([9, 0, 0], np.uint8)))
    assert not nowhere
    assert "got number 8" in nowhere.reason


def test_what_cannot_be_certified_is_refused_by_name(tmp_path):
    net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]], ["tanh"])
    with pytest.raises(ValueError, match="activations other than ReLU"):
        ennopt.maximize(net, [(0, 1)], certificate=tmp_path / "a")
    relu = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    for method in ("enn", "bigm"):
        with pytest.raises(ValueError, match=r"TwoPhase|BigM"):
            ennopt.maximize(relu, [(0, 1)], method=method, certificate=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def exact(ensemble, x):
    """The prediction in rational numbers."""
    total = Fraction(0)
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        y = [Fraction(float(v)) for v in x]
        last = len(member.weights) - 1
        for k, (w, b) in enumerate(member.layers()):
            y = [
                sum((Fraction(float(c)) * v for c, v in zip(row, y, strict=True)),
                    Fraction(float(s)))
                for row, s in zip(w, b, strict=True)
            ]  # fmt: skip
            if k < last:
                y = [max(v, Fraction(0)) for v in y]
        total += Fraction(float(weight)) * y[0]
    return total


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e7])
def test_majorants_hold_in_rational_numbers(scale):
    """On boxes as thin as rounding errors, where a missing margin would be seen."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        ensemble = random_ensemble(rng, 2, 2, (4, 3)).fold_input(scale, 0.3)
        lower = rng.normal(size=2) / scale
        for width in (1.0, 1e-12, 0.0):
            upper = lower + width * np.abs(lower)
            domain = Domain(lower, upper)
            stacks, functions, added = functions_of(Problem(ensemble, domain))
            model = Model(stacks, added, lower, upper)
            prover = Prover(model, functions, [-1e300], domain)
            _, bounds, points, _ = prover.prove(prover.root())
            (values,), (errors,) = prover.values(points)
            assert abs(exact(ensemble, points[0]) - Fraction(values[0])) <= errors[0]
            for corner in itertools.product(*zip(lower, upper, strict=True)):
                assert exact(ensemble, corner) <= Fraction(float(bounds[0]))
            if width == 0.0:  # and they are no wider than they must be
                assert bounds[0] - values[0] <= 1e-9 * max(1.0, abs(values[0]))


def test_a_certificate_takes_a_few_bytes_for_each_leaf(tmp_path, rng):
    ensemble = random_ensemble(rng, 3, 4, (10, 10))
    path = tmp_path / "proof.cert"
    _, claim = certified(path, ensemble, Domain([-1.0] * 4, [1.0] * 4), gap=1e-5)
    leaves = claim.tree.leaves
    assert path.stat().st_size < 2000 + 4 * leaves


def test_an_interrupted_run_has_a_certificate_of_its_bound(tmp_path, rng):
    ensemble = random_ensemble(rng, 3, 4, (10, 10))
    answer, claim = certified(
        tmp_path / "a", ensemble, Domain([-1.0] * 4, [1.0] * 4), gap=1e-5, node_limit=8
    )
    if answer.status is ennopt.Status.NODE_LIMIT:
        assert answer.bound <= claim.bound <= answer.bound + 2e-5 * abs(answer.bound)
    assert check(claim)


def test_an_empty_set_is_certified(tmp_path, rng):
    ensemble = random_ensemble(rng, 1, 2, (4,))
    rows = Rows([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0]], [0.5, 0.5, 0.6], [9, 9, 9])
    answer, claim = certified(
        tmp_path / "a", ensemble, Domain([-1] * 2, [1] * 2, rows=rows)
    )
    assert answer.status is ennopt.Status.INFEASIBLE
    assert check(claim).reason == "No input is feasible."
    somewhere = on_set(claim, Domain([-1] * 2, [1] * 2))
    assert not check(somewhere, most_pieces=500)


def test_the_command_line_writes_and_verifies(tmp_path, rng, capsys):
    model, file = tmp_path / "model.npz", tmp_path / "proof.cert"
    ensemble = random_ensemble(rng, 2, 3, (8, 8)).on_box([-1] * 3, [1] * 3)
    ensemble.save(model)
    told = ["--quiet", "--gap", "1e-6", "--certificate", str(file)]
    assert main(["solve", str(model), *told]) == 0
    for processes in ("1", "2"):
        given = [str(file), str(model), "--processes", processes]
        assert main(["verify", *given]) == 0
        out = capsys.readouterr().out
        assert out.count("Verified: The point") == 1
        assert "the certificate divides the set into " in out
        assert "leaves" not in out and "pieces" not in out
    ensemble.fold_output(1.5, 0.0).save(model)
    assert main(["verify", str(file), str(model), "--quiet"]) == 1
    assert "another model" in capsys.readouterr().out
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["verify", str(file), str(model), "--quiet"]) == 2
    assert "checksum" in capsys.readouterr().err


def test_work_in_parallel_proves_the_same(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(checker, "ROUND", 8)
    monkeypatch.setattr(checker, "BATCH", 4)
    ensemble = random_ensemble(rng, 2, 3, (8, 8))
    _, claim = certified(tmp_path / "a", ensemble, Domain([-1] * 3, [1] * 3), gap=1e-6)
    seen = []
    with ThreadPoolExecutor(2) as pool:
        keywords = {"executor": pool, "workers": 2}
        assert check(claim, progress=seen.append, **keywords)
        low = replace(claim, x=None, bound=claim.value - 0.05 * abs(claim.value))
        assert not check(low, **keywords)
        stopped = check(claim, progress=lambda moment: True, **keywords)
    assert len(seen) > 3
    assert not stopped
    assert "stopped" in stopped.reason


def test_a_result_that_rests_on_a_solver_says_what_can_be_verified(rng):
    ensemble = random_ensemble(rng, 1, 2, (3,))
    box = ennopt.maximize(ensemble, (-1, 1), method="box")
    assert "verifiable" not in box.details
    milp = ennopt.maximize(ensemble, (-1, 1), method="bigm")
    assert "cannot be certified" in milp.details["verifiable"]


def test_a_piece_that_shrinks_to_a_point_is_bounded_once_more(tmp_path):
    """Lists and whole numbers may leave a point, which cannot be split."""
    rng = np.random.default_rng(1)
    ensemble = random_ensemble(rng, 2, 2, (4,))
    values = Values.of(2, whole=[1], lists={0: [-0.8, -0.4]})
    near = (NearRows.rows([[-0.4, -1.0], [-0.8, -2.0]], [0.1, 0.2]),)
    domain = Domain([-0.9, -2.2], [-0.3, -0.9], values=values, regions=near)
    certified(tmp_path / "a", ensemble, domain)
    assert verify(tmp_path / "a", ensemble)


def test_a_layer_of_dead_neurons_is_checked(tmp_path):
    dead = Network(
        [[[1.0], [-1.0]], [[1.0, 1.0], [2.0, 1.0]], [[1.0, -1.0]]],
        [[-5.0, -5.0], [0.5, 0.25], [0.0]],
    )
    _, claim = certified(tmp_path / "a", Ensemble([dead]), Domain([-1.0], [1.0]))
    assert check(claim)
    assert claim.value == 0.25
