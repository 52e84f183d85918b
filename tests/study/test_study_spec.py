"""A study file means what it says, or is refused with a reason."""

import math
from pathlib import Path

import pytest

from ennopt.engine.box_search import BoxSearch
from ennopt.methods import METHODS, method_named
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.root_bound import RootBound
from ennopt.paper.two_phase import TwoPhase
from ennopt.study.expression import read_method, vocabulary
from ennopt.study.report import ORDER
from ennopt.study.spec import Files, Library, read_study, study_from

SHIPPED = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


def tables(**changes):
    experiment = {
        "items": ["table1"], "methods": {"big": "BigM()"},
        "instances": {"files": "*.npz"}, "limits": {"seconds": 10},
    } | changes  # fmt: skip
    return {"experiments": {"one": experiment}}


def test_an_experiment_is_read_as_written():
    (one,) = study_from(tables(seeds=[3, 4], threads=2)).experiments
    assert one.instances == Files("*.npz")
    assert one.methods == (("big", "BigM()"),)
    assert (one.limits.seconds, one.limits.nodes) == (10.0, math.inf)
    assert (one.seeds, one.threads) == ((3, 4), 2)


def test_a_profile_replaces_keys_and_merges_tables():
    base = tables(instances={"problems": ["peaks"], "members": [3], "replicas": 3})
    base["profiles"] = {
        "short": {"one": {"instances": {"replicas": 1}, "limits": {"nodes": 5},
                          "seeds": [9]}}
    }  # fmt: skip
    (one,) = study_from(base, "short").experiments
    assert one.instances == Library(problems=("peaks",), members=(3,), replicas=1)
    assert (one.limits.seconds, one.limits.nodes) == (10.0, 5.0)
    assert one.seeds == (9,)
    assert study_from(base).experiments[0].instances.replicas == 3


def test_a_profile_can_leave_an_experiment_out():
    base = tables()
    base["experiments"]["two"] = dict(base["experiments"]["one"])
    base["profiles"] = {"short": {"one": {"skip": True}}}
    assert [e.name for e in study_from(base, "short").experiments] == ["two"]


def test_two_experiments_do_not_fill_the_same_item():
    base = tables()
    base["experiments"]["two"] = dict(base["experiments"]["one"])
    with pytest.raises(ValueError, match="one experiment for table1, got one and two"):
        study_from(base)
    with pytest.raises(ValueError, match="got one and one"):
        study_from(tables(items=["table1", "table1"]))


def test_a_quality_experiment_has_one_method():
    methods = {"big": "BigM()", "box": "BoxSearch()"}
    with pytest.raises(ValueError, match=r"got 2 at experiments\.one\.methods"):
        study_from({"experiments": {"one": {"kind": "quality", "methods": methods}}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limitz": {}}, "got 'limitz' at experiments.one"),
        ({"limits": {"second": 1}}, "got 'second' at experiments.one.limits"),
        ({"limits": {"seconds": "10"}}, "Expected a number, got '10'"),
        ({"limits": {"seconds": -1}}, "positive limit"),
        ({"items": ["table9"]}, "got 'table9'"),
        ({"kind": "races"}, "got 'races'"),
        ({"methods": {}}, "at least one method"),
        ({"methods": {"big": 3}}, "in quotes"),
        ({"methods": {"big": "BigN()"}}, "got 'BigN'"),
        ({"instances": {"file": "x"}}, "got 'file'"),
        ({"instances": {"files": "x", "sense": "up"}}, "got 'up'"),
        ({"instances": {"members": [0]}}, "whole number >= 1"),
        ({"instances": {"members": 3}}, "list of whole numbers"),
        ({"seeds": [True]}, "whole number"),
        ({"threads": 0}, "whole number >= 1"),
        ({"seconds_of": "day"}, "wall, processor, got 'day'"),
        ({"seconds_of": "processor", "threads": 2}, "one thread where seconds_of"),
    ],
)
def test_a_mistake_is_told_with_its_place(changes, message):
    with pytest.raises(ValueError, match=message):
        study_from(tables(**changes))


def test_a_mistake_in_a_profile_that_was_not_chosen_is_told_too():
    base = tables()
    base["profiles"] = {"short": {"too": {}}}
    with pytest.raises(ValueError, match=r"got .too. at profiles\.short"):
        study_from(base)


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="among paper, got 'quick'"):
        study_from(tables(), "quick")


def test_a_file_that_is_not_toml_is_refused(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text("title = ")
    with pytest.raises(ValueError, match="Expected valid TOML"):
        read_study(file)


@pytest.mark.parametrize("profile", ["smoke", "desk", "evening", "paper"])
def test_the_shipped_study_fills_every_table_and_figure_in_every_profile(profile):
    (path,) = [p for p in SHIPPED if p.stem == "paper"]
    study = read_study(path, profile)
    filled = {item for experiment in study.experiments for item in experiment.items}
    assert filled == set(ORDER)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_study_can_be_read(path):
    assert read_study(path).experiments


# The language of methods.


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_read_back_from_its_repr(name):
    method = method_named(name)
    assert read_method(repr(method)) == method
    assert read_method(name) == method


@pytest.mark.parametrize(
    "method",
    [BigM(), BranchAndCut(), TwoPhase(), TwoPhase.tuned(), BoxSearch(), RootBound()],
    ids=lambda method: type(method).__name__,
)
def test_every_method_of_a_study_is_read_back_from_its_repr(method):
    assert read_method(repr(method)) == method


def test_a_class_method_makes_a_method():
    assert read_method("TwoPhase.tuned()") == TwoPhase.tuned()


def test_an_expression_sets_fields():
    assert read_method("BigM(backend='scip')") == BigM(backend="scip")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "BigM.__class__('x', (), {})",
        "BigM(backend=().__class__)",
        "(lambda: BigM())()",
        "BigM(**{'backend': 'scip'})",
        "BigM(backend=[c for c in 'scip'])",
        "BigM(backend='sc' + 'ip')",
        "BigM(",
        "BigM(no_such_field=1)",
        "Limits(seconds=1)",
        "3",
        "",
    ],
)
def test_anything_but_constructors_and_plain_values_is_refused(text):
    with pytest.raises(ValueError, match=r"Expected|got an unexpected|no_such_field"):
        read_method(text)


def test_a_constructor_that_is_no_method_is_refused():
    assert "Interval" in vocabulary()
    with pytest.raises(ValueError, match="verb solve"):
        read_method("Interval()")
