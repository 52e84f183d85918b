"""An empty set is explained by statements that contradict each other."""

import itertools
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

import ennopt
from ennopt.cli import main
from ennopt.domain import Domain, Rows, Values
from ennopt.domain.statements import read_statement
from ennopt.milp.conflict import conflict, irreducible
from ennopt.milp.highs import Highs
from ennopt.network import Ensemble, Network
from ennopt.pages import told
from ennopt.result import Result, Status
from oracles import random_ensemble

NAMES = ("cement", "slag", "fly ash")


def can_be_met(texts, names):
    """Whether some input meets all of these, by SciPy."""
    parts = [read_statement(text, names) for text in texts]
    rows = [(p.matrix[0], p.least[0], p.most[0]) for p in parts]
    below = [(-a, -low) for a, low, _ in rows if np.isfinite(low)]
    above = [(a, high) for a, _, high in rows if np.isfinite(high)]
    matrix, sides = zip(*below, *above, strict=True)
    free = [(None, None)] * len(names)
    return linprog(np.zeros(len(names)), matrix, sides, bounds=free).status == 0


def empty_set(rng, d, count):
    """Statements in units of their own; the last contradicts a sum of the others."""
    box = Domain(rng.normal(size=d) - 1.0, rng.normal(size=d) + 1.0 + d)
    matrix = rng.normal(size=(count, d)) * (rng.random((count, d)) < 0.6)
    most = matrix @ box.centre + rng.uniform(0.0, 0.5, count)
    weights = rng.random(count) * (rng.random(count) < 0.6) + 1e-3
    against = weights @ matrix
    least = weights @ most + rng.uniform(0.1, 1.0)
    rows = Rows(
        np.vstack([matrix, against]), [*[-np.inf] * count, least], [*most, np.inf]
    )
    units = 10.0 ** rng.integers(-4, 5, size=d)
    return box.constrained((rows.matrix, rows.least, rows.most)).on_units(units)


def restated(domain):
    """The same set, its constraints told anew."""
    rows = domain.rows
    box = Domain(domain.lower, domain.upper)
    return box.constrained((rows.matrix, rows.least, rows.most))


def test_the_reason_is_a_contradiction_and_no_part_of_it_is():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        domain = restated(empty_set(rng, int(rng.integers(1, 6)), 5))
        found = conflict(domain).statements
        assert found
        scaled = [_scaled(text, domain) for text in found]
        assert not can_be_met(scaled, domain.names)
        for k in range(len(scaled)):
            if len(scaled) > 1:
                assert can_be_met(scaled[:k] + scaled[k + 1 :], domain.names)


def _scaled(text, domain):
    """A statement in units of the box: SciPy's tolerances are absolute."""
    rows = read_statement(text, domain.names).on_units(domain.reach)
    size = np.abs(rows.matrix).max()
    told = Domain(-domain.reach, domain.reach).constrained(
        (rows.matrix / size, rows.least / size, rows.most / size)
    )
    return told.rows.texts[0]


def test_sums_have_an_irreducible_part(rng):
    for _ in range(200):
        numbers = rng.integers(0, 9, size=rng.integers(1, 12)).tolist()
        limit = int(rng.integers(0, max(1, sum(numbers))))
        if not sum(numbers) > limit:
            continue
        part = irreducible(numbers, lambda some, limit=limit: sum(some) > limit)
        assert sum(part) > limit
        assert all(sum(part) - one <= limit for one in part)


def test_constraints_are_preferred_to_bounds_and_fixed_inputs_are_one_statement():
    box = Domain([0, 0, 5], [9, 9, 5], NAMES)
    first, last = "cement <= slag", "slag <= cement - 1"
    both = box.constrained([first, "cement + slag == 20", last])
    assert conflict(both).statements == (first, last)
    fixed = box.constrained(["`fly ash` + cement <= 4"])
    assert conflict(fixed).statements == (
        "`fly ash` + cement <= 4", "cement >= 0", "`fly ash` == 5",
    )  # fmt: skip


def test_a_set_with_points_has_no_conflict():
    assert conflict(Domain([0, 0], [1, 1]).constrained("x0 + x1 == 1")).statements == ()


def test_whole_numbers_are_part_of_the_question():
    box = Domain([0, 0, 0], [5, 5, 5], NAMES)
    texts = ["2*cement + 2*slag == 5", "cement <= slag", "`fly ash` >= 1.5"]
    domain = box.constrained(texts)
    assert conflict(domain).statements == ()
    whole = replace(domain, values=Values.of(3, whole=[0, 1]))
    found = conflict(whole).statements
    assert found[0] == texts[0]
    assert not set(found) & set(texts[1:])
    for a, b in itertools.product(range(6), repeat=2):
        assert 2 * a + 2 * b != 5


# From the front door.


def test_an_infeasible_result_names_what_contradicts(rng):
    model = random_ensemble(rng, 2, 3, (5, 4))
    box = Domain([0, 0, 0], [540, 360, 90], NAMES)
    texts = ["`fly ash` <= slag", "cement + slag == 2400"]
    for method in ("auto", "bigm"):
        answer = ennopt.maximize(model, box, constraints=texts, method=method)
        assert answer.status is Status.INFEASIBLE
        assert answer.details["conflict"] == [
            "cement + slag == 2400", "cement <= 540", "slag <= 360",
        ]  # fmt: skip
        text = answer.summary()
        assert "these contradict each other" in text
        assert "\n    cement + slag == 2400\n    cement <= 540\n" in text
        assert Result.from_json(answer.to_json()).summary() == text
        assert [met.text for met in answer.constraints] == texts


def test_the_command_line_names_what_contradicts(tmp_path, capsys):
    path = tmp_path / "sum.npz"
    net = Network([[[1.0, 1.0]]], [[0.0]])
    Ensemble([net], input_names=("dose", "heat")).on_box([0, 0], [9, 9]).save(path)
    words = ["--constraint", "dose + heat >= 20", "--fix", "heat=10"]
    assert main(["solve", str(path), "--quiet", *words]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Infeasible")
    assert "    dose + heat >= 20\n    dose <= 9\n    heat == 10\n" in out


def test_without_time_nothing_is_told():
    domain = Domain([0, 0], [1, 1]).constrained("x0 + x1 >= 3")
    found = conflict(domain, seconds=1e-9)
    assert found.statements == ()
    assert not found.is_irreducible


def test_a_search_that_is_stopped_asks_no_more_and_says_so(rng, monkeypatch):
    """It went on to build hundreds of programs after its time, for 19 seconds."""
    domain = restated(empty_set(rng, 4, 60))
    asked = []
    solve = Highs.solve

    def counted(*arguments):
        asked.append(1)
        return solve(*arguments)

    monkeypatch.setattr(Highs, "solve", counted)
    whole = conflict(domain)
    assert whole.is_irreducible
    for solves in (1, 2, 5):
        asked.clear()
        part = conflict(domain, solves=solves)
        assert len(asked) == solves
        assert not part.is_irreducible
        assert len(part.statements) > len(whole.statements)
        assert not can_be_met(
            [_scaled(t, domain) for t in part.statements], domain.names
        )


def test_an_answer_says_that_the_search_for_a_reason_was_stopped(rng, monkeypatch):
    monkeypatch.setattr("ennopt.milp.conflict.conflict.__defaults__", (5.0, 1))
    model = random_ensemble(rng, 2, 3, (5, 4))
    box = Domain([0, 0, 0], [540, 360, 90], NAMES)
    texts = ["`fly ash` <= slag", "cement + slag == 2400"]
    answer = ennopt.maximize(model, box, constraints=texts)
    assert set(texts) < set(answer.details["conflict"])
    assert "search for the reason was stopped" in answer.summary()


def test_a_limit_out_of_reach_is_told_from_an_empty_set(rng):
    model = ennopt.Prediction(random_ensemble(rng, 2, 3, (5, 4)), name="strength")
    for words in ({}, {"constraints": "x0 + x1 == 1"}, {"integers": ["x2"]}):
        far = ennopt.maximize(model, (0, 1), limits=model >= 1e3, **words)
        assert far.status is Status.INFEASIBLE
        assert far.headline == (
            "Infeasible: no allowed input meets the limit strength >= 1000.0"
        )
        assert "There are inputs that meet every bound" in far.summary()
        assert "meets strength" in told.verdict(far).words
        assert Result.from_json(far.to_json()).headline == far.headline
    empty = ennopt.maximize(
        model, (0, 1), limits=model >= 1e3, constraints="x0 + x1 >= 3"
    )
    assert empty.headline.endswith("no input satisfies every bound and constraint")
    assert "x0 + x1 >= 3" in empty.details["conflict"]
    assert "reaches" not in told.verdict(empty).words
    both = ennopt.maximize(model, (0, 1), limits=[model >= 1e3, model.std() <= 9])
    assert "all of the limits strength >= 1000.0; std(strength) <= 9" in both.headline


def test_a_long_list_of_contradictions_ends_with_how_many_more(rng):
    model = random_ensemble(rng, 2, 3, (5,))
    answer = ennopt.maximize(model, (0, 1), constraints="x0 + x1 >= 3")
    assert answer.status is Status.INFEASIBLE
    many = [f"x{k} <= {k}" for k in range(53)]
    long = replace(answer, details=answer.details | {"conflict": many})
    assert "\n    x19 <= 19\n    and 33 more\n" in long.summary()
    assert "and 33 more" in long._repr_html_()
    assert "x20" not in long.summary()
    assert long.contradictory[-1] == "and 33 more"
