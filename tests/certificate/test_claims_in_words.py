"""A check says what was claimed, from numbers, and can insist on a problem."""

from dataclasses import replace

import numpy as np
import pytest

import ennopt
from ennopt import Cvar, Domain, Ensemble, Prediction, read_problem, verify
from ennopt.certificate.record import Certificate, OtherClaimError
from ennopt.certificate.words import claim_words
from ennopt.cli import main
from ennopt.domain.regions import NearRows
from oracles import random_ensemble

FILE = """
objective = "strength - 0.5*cement + 1"
sense = "max"
limits = ["slump <= 0.75", "worst(strength) >= -50"]
integers = ["age"]
constraints = ["cement + 2*age <= 2.5"]
models.strength = {file = "strength.npz", risk = "cvar:0.6"}
models.slump = "slump.npz"
bounds.cement = [-1, 1]
bounds.age = [0, 3]
"""

CLAIM = (
    "the maximum of [strength: the mean of the worst 0.6 of the members] "
    "- 0.5 * cement + 1",
    "where slump <= 0.75",
    "where [strength: the worst member] >= -50",
    "where cement in [-1, 1]",
    "where age in [0, 3], a whole number",
    "where cement + 2 * age <= 2.5",
)


@pytest.fixture
def folder(tmp_path):
    """A problem file with its models, and a certificate of it."""
    rng = np.random.default_rng(3)
    for name in ("strength", "slump"):
        made = random_ensemble(rng, 2, 2, (4,))
        named = Ensemble(made.members, made.weights, input_names=["cement", "age"])
        named.save(tmp_path / f"{name}.npz")
    (tmp_path / "problem.toml").write_text(FILE)
    read_problem(tmp_path / "problem.toml").solve(certificate=tmp_path / "proof.cert")
    return tmp_path


def test_a_verdict_says_objective_risk_limits_and_set(folder):
    verdict = read_problem(folder / "problem.toml").verify(folder / "proof.cert")
    assert verdict, verdict.reason
    assert verdict.claim == CLAIM
    others = [folder / "slump.npz"]
    by_files = verify(folder / "proof.cert", folder / "strength.npz", others=others)
    assert by_files
    assert by_files.claim[0].startswith("the maximum of [strength.npz: the mean of")
    assert by_files.claim[1] == "where slump.npz <= 0.75"
    posed = read_problem(folder / "problem.toml").question({}).posed()
    assert verify(folder / "proof.cert", posed.problem)
    with pytest.raises(TypeError, match="Leave one out"):
        verify(folder / "proof.cert", posed.problem, posed.problem)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('sense = "max"', 'sense = "min"', "sense"),
        ("0.5*cement", "0.25*cement", "objective"),
        ("cvar:0.6", "cvar:0.7", "objective"),
        ("cvar:0.6", "worst", "objective"),
        ("0.75", "0.76", "limits"),
        ("worst(strength) >= -50", "strength >= -50", "limits"),
        ("[0, 3]", "[0, 4]", "feasible set"),
        ('integers = ["age"]', "", "feasible set"),
        ('slump = "slump.npz"', 'slump = "strength.npz"', "model"),
    ],
)
def test_a_certificate_of_another_problem_is_refused(folder, old, new, what, capsys):
    assert old in FILE
    (folder / "problem.toml").write_text(FILE.replace(old, new))
    decision = read_problem(folder / "problem.toml")
    if what == "model":
        assert "another model" in decision.verify(folder / "proof.cert").reason
    else:
        with pytest.raises(OtherClaimError, match=f"for your {what}"):
            decision.verify(folder / "proof.cert")
    words = ["verify", str(folder / "proof.cert"), str(folder / "problem.toml")]
    assert main([*words, "--quiet", "--processes", "1"]) == 1
    assert capsys.readouterr().out.startswith("Not verified: ")


def test_the_command_says_what_was_claimed(folder, capsys):
    words = ["verify", str(folder / "proof.cert"), str(folder / "problem.toml")]
    assert main([*words, "--quiet", "--processes", "1"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("Verified: ")
    assert tuple(line.strip() for line in told[1:-1]) == CLAIM
    other = ["--other", str(folder / "slump.npz")]
    assert main([*words, *other, "--quiet", "--processes", "1"]) == 2
    words[2] = str(folder / "strength.npz")
    assert main([*words, *other, "--quiet", "--processes", "1"]) == 0
    assert "where slump.npz <= 0.75" in capsys.readouterr().out


def test_words_are_made_from_numbers_and_not_from_texts_of_the_file(folder):
    models = [ennopt.load(folder / f"{n}.npz") for n in ("strength", "slump")]
    claim = Certificate.read(folder / "proof.cert", models)
    problem = claim.problem
    forged = replace(problem.limits[0], text="slump <= 0.1\x1b[2J")
    domain = replace(problem.domain, names=("age", "cement"))
    lie = replace(problem, limits=(forged, problem.limits[1]), domain=domain)
    told = claim_words(lie, {})
    assert told[1] == "where model 2 <= 0.75"
    assert "age (cement of the model) in [-1, 1]" in told[3]


def test_outputs_deviations_equations_and_regions_have_words(rng):
    model = random_ensemble(rng, 2, 2, (3,), 2)
    first = Prediction(model, output=0, name="first")
    domain = replace(
        Domain([0.0] * 2, [1.0] * 2),
        regions=(NearRows.rows([[0.0, 0.0], [1.0, 1.0]], 0.6),),
    )
    posed = ennopt.minimize(
        Prediction(model, output=[1.0, -2.0]), domain, node_limit=1,
        limits=[first.std() <= 9.0], constraints=["x0 + x1 == 1"],
    ).asked.problem  # fmt: skip
    assert claim_words(posed, {}) == (
        "the minimum of (output 0 - 2 * output 1) of model 1",
        "where [the standard deviation of the members of output 0 of model 1] <= 9",
        "where x0 in [0, 1]",
        "where x1 in [0, 1]",
        "where x0 + x1 = 1",
        "where near 1 of 2 rows of data at least",
    )


@pytest.mark.parametrize("risk", ["worst", Cvar(0.5)], ids=repr)
def test_a_minimum_and_its_risk_are_named(risk, rng):
    model = random_ensemble(rng, 2, 2, (3,))
    asked = ennopt.minimize(model, [(0, 1)] * 2, risk=risk, node_limit=1).asked
    told = claim_words(asked.problem, {})[0]
    assert told.startswith("the minimum of [model 1: the ")
