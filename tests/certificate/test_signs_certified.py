"""Certificates of searches on neurons: slopes of leaves and lemmas need no trust."""

from dataclasses import replace

import numpy as np
import pytest

import ennopt
from ennopt import Domain, NeuronSearch, Problem, Rows, solve, verify
from ennopt.certificate.checker import check
from ennopt.certificate.record import OWN, Certificate
from ennopt.domain.values import Values
from ennopt.engine.compiled import kernel
from oracles import exact_maximum, random_ensemble

pytestmark = pytest.mark.skipif(kernel() is None, reason="the extension is not built")

SETS = {"box": None, "rows": Rows(np.ones((1, 4)), [-0.5], [0.25])}


def certified(path, seed=0, kind="box", sense="max", **keywords):
    ensemble = random_ensemble(np.random.default_rng(seed), 2, 4, (6, 5))
    rows = {} if SETS[kind] is None else {"rows": SETS[kind]}
    problem = Problem(ensemble, Domain([-1.0] * 4, [1.0] * 4, **rows), sense)
    method = keywords.pop("method", NeuronSearch())
    answer = solve(problem, method, certificate=path, threads=1, **keywords)
    return ensemble, answer, Certificate.read(path, ensemble)


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_search_on_neurons_is_verified_and_no_wrong_claim_is(
    kind, sense, seed, tmp_path
):
    ensemble, answer, claim = certified(tmp_path / "a", seed, kind, sense)
    assert answer.status is ennopt.Status.OPTIMAL
    verdict = verify(tmp_path / "a", ensemble)
    assert verdict, verdict.reason
    assert claim.lemmas
    assert claim.tree.kinds.shape[0] == claim.tree.leaves
    assert verdict.pieces <= 2 * sum(
        tree.codes.size for tree in (claim.tree, *(lm.tree for lm in claim.lemmas))
    )  # the slopes suffice: hardly a piece is split by the checker itself
    sign = 1.0 if sense == "max" else -1.0
    size = abs(claim.value) + 1e-3
    assert not check(replace(claim, bound=claim.value - sign * 1e-6 * size))
    alone = replace(claim, x=None, value=float("nan"))
    assert not check(replace(alone, bound=claim.value - sign * 0.01 * size))


def test_a_lemma_that_claims_too_much_is_refused(tmp_path):
    _, _, claim = certified(tmp_path / "a")
    for k, lemma in enumerate(claim.lemmas):
        size = abs(lemma.bound) + 1.0
        for false in (
            replace(lemma, bound=lemma.bound - size),
            replace(lemma, sign=-lemma.sign, bound=-size),
            replace(lemma, neuron=99),
            replace(lemma, layer=-1),
        ):
            lemmas = (*claim.lemmas[:k], false, *claim.lemmas[k + 1 :])
            assert not check(replace(claim, lemmas=lemmas), most_pieces=2000)
        if k == 3:
            break


@pytest.mark.parametrize("seed", range(3))
def test_any_slopes_and_multiples_prove_or_fail_but_never_lie(seed, tmp_path):
    _, _, claim = certified(tmp_path / "a", seed, "rows")
    rng = np.random.default_rng(seed)
    domain = claim.problem.domain
    lp_optimum = claim.value  # proved optimal to the gap

    def scrambled(tree):
        kinds = rng.integers(0, 4, size=tree.kinds.shape).astype(np.uint8)
        slopes = rng.normal(size=np.count_nonzero(kinds == OWN)).astype(np.float32)
        multiples = rng.normal(size=tree.multiples.shape).astype(np.float32)
        return replace(tree, kinds=kinds, slopes=slopes, multiples=multiples)

    wild = replace(claim, tree=scrambled(claim.tree), lemmas=())
    assert check(wild)  # the checker splits inputs where the slopes are bad
    low = replace(wild, x=None, bound=lp_optimum - 1e-3 * (1.0 + abs(lp_optimum)))
    assert not check(low, most_pieces=3000)
    assert domain.contains(claim.x)
    # Without any slopes, and with a tree of nothing, it takes longer.
    assert check(replace(claim, tree=replace(wild.tree, codes=claim.tree.codes)))


def test_the_bound_is_that_of_enumeration(tmp_path):
    ensemble = random_ensemble(np.random.default_rng(5), 1, 3, (5, 3))
    domain = Domain([-1.0] * 3, [1.0] * 3)
    path = tmp_path / "a"
    solve(Problem(ensemble, domain), "neurons", certificate=path, gap=1e-6, threads=1)
    claim = Certificate.read(path, ensemble)
    exact, _ = exact_maximum(ensemble, domain)
    assert check(claim)
    assert exact <= claim.bound <= exact + 2e-6 * max(1.0, abs(exact))
    below = replace(claim, x=None, bound=exact - 1e-9 * max(1.0, abs(exact)))
    assert not check(below, most_pieces=3000)


def test_a_run_in_two_pieces_has_one_certificate(tmp_path):
    options = {"checkpoint": tmp_path / "state", "gap": 1e-6}
    _, first, claim = certified(tmp_path / "a", 1, node_limit=20, **options)
    assert first.status is ennopt.Status.NODE_LIMIT
    assert check(claim)
    _, last, claim = certified(tmp_path / "a", 1, **options)
    assert last.status is ennopt.Status.OPTIMAL
    assert check(claim)


def test_what_a_search_on_neurons_cannot_certify_is_refused_by_name(tmp_path):
    ensemble = random_ensemble(np.random.default_rng(0), 1, 2, (4,))
    domain = Domain([-1.0] * 2, [1.0] * 2, values=Values.of(2, whole=[0]))
    with pytest.raises(ValueError, match="whole numbers or listed values"):
        solve(Problem(ensemble, domain), "neurons", certificate=tmp_path / "a")
    plain, model = (
        Domain([-1.0] * 2, [1.0] * 2),
        random_ensemble(np.random.default_rng(0), 2, 2, (4,)),
    )
    limit = ennopt.Prediction(model) >= -100.0
    for words, told in (
        ({"limits": [limit]}, "limits on predictions"),
        ({"risk": "worst"}, "an objective other than a weighted sum"),
    ):
        with pytest.raises(ValueError, match=told):
            ennopt.maximize(
                model, plain, method="neurons", certificate=tmp_path / "a", **words
            )
    assert not (tmp_path / "a").exists()
