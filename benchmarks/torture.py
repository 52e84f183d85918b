"""Random problems over the whole language, each solved by every method that can.

    python benchmarks/torture.py [COUNT] [FIRST_SEED] [--out FILE] [--record FILE]

Values and bounds of all methods are compared with an oracle and with each other: on
small boxes the enumeration of all activation patterns, for limits and risks a MILP
model of its own in HiGHS, otherwise many points and the other methods. Certificates of
both searches are verified, and claims below the maximum must not be. Prints a table of
counts by kind of problem, and every disagreement with its seed. Exit status 1 if there
is any.

With a record the counts of each seed are kept in a file, a line of JSON each. The same
command goes on where an earlier one was stopped, and records of several seed ranges,
one behind the other in a file, give one table.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "conformance"))

from test_decisions import Oracle, modelled, problem_of

from ennopt import Domain, Ensemble, MeanMinusStd, Network, Problem, Status, solve
from ennopt.canonical import Canonical
from ennopt.certificate.checker import check
from ennopt.certificate.record import Certificate
from ennopt.certificate.writer import NOT_CERTIFIED
from ennopt.methods import method_of
from ennopt.problem import Combination, Term
from ennopt.run import matrix_threads
from oracles import (
    DEGENERATE,
    exact_maximum,
    exactly_feasible,
    mixed,
    random_case,
    random_domain,
    random_ensemble,
    random_set,
)

BELOW = 1e-9
"""How far below the maximum a claim is that must be refused, relatively."""

GAP, SECONDS, POINTS = 1e-4, 2.0, 1000
OWN = ("box", "neurons")
MOST_PIECES, WRONG_PIECES = 20_000, 256
"""Pieces after which the checker gives up, and the same for a claim that is wrong."""

SOLVERS = {"bigm-highs": ("bigm", "highs"), "bigm-scip": ("bigm", "scip"),
           "bnc": ("bnc", "highs"), "enn": ("enn", "highs")}  # fmt: skip
EVERY = {"bigm-highs": 4, "bigm-scip": 8, "bnc": 16, "enn": 16}
"""A method with a solver is asked about every so many problems: they take longer."""


def random_boxes(rng, seed):
    return random_case(rng)


def degenerate(rng, seed):
    return DEGENERATE[list(DEGENERATE)[seed % len(DEGENERATE)]](rng)


def scales(rng, seed):
    """Weights from 1e-8 to 1e8, layer by layer or row by row."""
    ensemble, domain = random_case(rng)
    members = []
    for member in ensemble.members:
        weights, biases = [], []
        for w, b in member.layers():
            rows = len(b) if rng.random() < 0.3 else 1
            factor = 10.0 ** rng.uniform(-8.0, 8.0, size=(rows, 1))
            weights.append(w * factor)
            biases.append(b * factor[:, 0])
        members.append(Network(tuple(weights), tuple(biases)))
    return Ensemble(tuple(members)), domain


def ties(rng, seed):
    """Small whole weights: kinks meet in corners, neurons are equal, optima flat."""
    d = int(rng.integers(1, 3))
    members = []
    for _ in range(int(rng.integers(1, 4))):
        widths = [d, *rng.integers(1, 5, size=int(rng.integers(1, 3))).tolist(), 1]
        weights = [rng.integers(-1, 2, size=(n, m)).astype(float)
                   for m, n in pairwise(widths)]  # fmt: skip
        biases = [rng.integers(-1, 2, size=n).astype(float) for n in widths[1:]]
        if rng.random() < 0.5:  # a neuron twice
            weights[0][-1], biases[0][-1] = weights[0][0], biases[0][0]
        members.append(Network(tuple(weights), tuple(biases)))
    return Ensemble(tuple(members)), Domain([-1.0] * d, [1.0] * d)


def sets(rng, seed):
    domain, _ = random_set(rng)
    widths = (3, 3) if rng.random() < 0.4 else (int(rng.integers(2, 6)),)
    ensemble = random_ensemble(rng, int(rng.integers(1, 4)), domain.num_inputs, widths)
    return ensemble, domain


def rows(rng, seed):
    d = int(rng.integers(2, 6))
    domain = mixed(rng, d, int(rng.integers(1, 4)), equal=rng.random() < 0.3)
    return random_ensemble(rng, int(rng.integers(1, 4)), d, (5, 4)), domain


def paper(rng, seed):
    """Members of two layers of twenty."""
    d = int(rng.integers(2, 4))
    return random_ensemble(rng, 3, d, (20, 20)), random_domain(rng, d)


def inputs(rng, seed):
    """More inputs than neurons."""
    d = int(rng.integers(8, 25))
    return random_ensemble(rng, 2, d, (5, 4)), random_domain(rng, d)


def std(rng, seed):
    """Mean less standard deviations, which no linear model states."""
    d = int(rng.integers(1, 3))
    ensemble = Ensemble(random_ensemble(rng, 3, d, (4, 3)).members)
    term = Term(ensemble, risk=MeanMinusStd(float(rng.uniform(0.2, 2.0))))
    return ensemble, random_domain(rng, d), Combination((term,), np.zeros(d))


KINDS = [
    (random_boxes, 12), (degenerate, 12), (scales, 8), (ties, 8), (sets, 10), (rows, 6),
    ("decisions", 10), (std, 2), (paper, 1), (inputs, 1),
]  # fmt: skip
"""Kinds of problems, and how many of a round of 70."""

ROUND = [kind for kind, count in KINDS for _ in range(count)]
ENUMERATED = {random_boxes, degenerate, scales, ties}


def drawn(seed):
    """The kind of a problem and the problem."""
    kind, number = ROUND[seed % len(ROUND)], seed // len(ROUND)
    if kind == "decisions":
        return kind, problem_of(seed)
    rng = np.random.default_rng(seed)
    ensemble, domain, *goal = kind(rng, number)
    sense = ("max", "min")[int(rng.integers(2))]
    return kind, Problem(ensemble, domain, sense, None, *goal)


def exact(kind, problem, sign):
    """The maximum of `sign` times the objective, how far off it may be, and points.

    ``None`` where nothing but points is known, ``-inf`` where nothing is feasible.
    """
    if kind in ENUMERATED:
        ensemble = problem.ensemble if sign > 0 else problem.ensemble.negated()
        found = exact_maximum(ensemble, problem.domain)[0]
        return found, 1e-9 * max(abs(found), Canonical.of(problem).size)
    if kind == "decisions" and modelled(problem):
        found = Oracle(problem).best
        return (-np.inf, 0.0) if found is None else (
            sign * found, 1e-5 * max(1.0, abs(found)))  # fmt: skip
    canonical = Canonical.of(problem)
    points = problem.domain.sample(POINTS, np.random.default_rng(0))
    points = points[canonical.feasible(points)] if len(points) else points
    least = float(canonical.values(points).max()) if len(points) else -np.inf
    return None, least


def answers(seed, kind, problem, file):
    """Results of all methods that can, and the certificates' claims."""
    features = Canonical.of(problem).features
    for name in (*OWN, *SOLVERS):
        if name in EVERY and (
            seed // len(ROUND) % EVERY[name] or kind in (scales, paper)
        ):
            continue
        method = method_of(*SOLVERS.get(name, (name, None)))
        if not features <= method.handles:
            continue
        told = None
        plain = not features - {f for f in features if f.name == "LINEAR_ROWS"}
        if (name == "box" and not features & NOT_CERTIFIED) or (
            name == "neurons" and plain
        ):
            told = file
        answer = solve(
            problem, method, threads=1, gap=GAP, time_limit=SECONDS, certificate=told
        )
        yield name, answer, told


def tried(seed, file):
    """What happened to one problem: counts by name, and complaints."""
    kind, problem = drawn(seed)
    label = kind if isinstance(kind, str) else kind.__name__
    sign = 1.0 if problem.sense == "max" else -1.0
    best, slack = exact(kind, problem, sign)
    counts, wrong = Counter(problems=1), []
    found = {}
    for name, answer, told in answers(seed, kind, problem, file):
        found[name] = answer
        counts[name] += 1
        counts["solves"] += 1
        finished = answer.status in (Status.OPTIMAL, Status.INFEASIBLE)
        counts["limit" if not finished else "finished"] += 1
        value = sign * answer.value if answer.x is not None else -np.inf
        bound = sign * answer.bound
        if answer.x is not None and not problem.domain.contains(answer.x):
            wrong.append(f"{name}: the point is not feasible")
        if best is None:
            if bound < slack - 1e-9 * max(1.0, abs(slack)):
                wrong.append(f"{name}: bound {bound!r} below a point's {slack!r}")
        else:
            room = slack if name in OWN else slack + 1e-5 * max(1.0, abs(best))
            if value > best + 10 * room and met(problem, answer.x):
                counts["oracle missed"] += 1  # HiGHS lost a point that exists
                best, slack = None, value
            elif value > best + 10 * room or bound < best - room:
                wrong.append(f"{name}: {value!r}, {bound!r}, and the best is {best!r}")
            elif (best == -np.inf) != (answer.status is Status.INFEASIBLE) and finished:
                wrong.append(f"{name}: {answer.status} but the best is {best!r}")
        if told is not None:
            wrong += certified(name, problem, sign, told, best, counts)
    for one, answer in found.items():
        for other, rival in found.items():
            size = 1e-6 * max(1.0, abs(answer.value)) if answer.x is not None else 0.0
            if answer.x is not None and sign * (rival.bound - answer.value) < -size:
                wrong.append(f"{one} has {answer.value!r}, {other} excludes it")
    return label, counts, [f"seed {seed} ({label}) {words}" for words in wrong]


def met(problem, x):
    """Whether a point of a problem with limits meets them all, without any slack."""
    least = np.array([limit.least for limit in problem.limits])
    inside = exactly_feasible(problem.domain, x)
    return inside and len(least) > 0 and bool(np.all(problem.limit_values(x) >= least))


def certified(name, problem, sign, file, best, counts):
    """Verify a certificate, and claims that are wrong."""
    terms = (term for function in problem.functions() for term in function.terms)
    claim = Certificate.read(file, [problem.ensemble, *(t.ensemble for t in terms)])
    counts["certificates"] += 1
    verdict = check(claim, most_pieces=MOST_PIECES + 8 * claim.tree.codes.size)
    if verdict:
        counts["verified"] += 1
    elif "too weak" in verdict.reason or "cannot be split" in verdict.reason:
        counts["given up"] += 1  # its margins are wider than the search's
        print(f"{name} given up: {verdict.reason}", flush=True)
    else:
        yield f"{name}: certificate not verified: {verdict.reason}"
    if best is None:
        best = sign * claim.value if claim.x is not None else -np.inf
    if best == -np.inf:
        return
    low = sign * (best - BELOW * max(1.0, abs(best)))
    if problem.limits:
        low = claim.value - sign * 1e-5 * max(1.0, abs(best))
    alone = replace(claim, x=None, value=float("nan"), bound=low)
    counts["wrong claims"] += 1
    if check(alone, most_pieces=WRONG_PIECES):
        yield f"{name}: a wrong claim was verified"
    else:
        counts["refused"] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("first", nargs="?", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the table, too")
    parser.add_argument("--record", type=Path, help="counts of each seed; goes on")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    table, wrong, done = defaultdict(Counter), [], set()

    def add(seed, label, counts, words):
        table[label] += counts
        table["total"] += counts
        wrong.extend(words)
        done.add(seed)
        for line in words:
            print(line, flush=True)
        if options.out and len(done) % 100 == 0:
            options.out.write_text(told(table), encoding="utf-8")

    for seed, label, counts, words in recorded(options.record):
        if seed not in done:
            add(seed, label, Counter(counts), words)
    with tempfile.TemporaryDirectory() as folder, matrix_threads(1):
        try:
            for seed in range(options.first, options.first + options.count):
                if seed in done:
                    continue
                begin = time.process_time()
                label, counts, words = tried(seed, Path(folder) / "proof.cert")
                counts["milliseconds"] = round(1000 * (time.process_time() - begin))
                if options.record:
                    with options.record.open("a", encoding="utf-8") as record:
                        record.write(json.dumps([seed, label, counts, words]) + "\n")
                add(seed, label, counts, words)
        except KeyboardInterrupt:
            print(f"Stopped after {len(done):,} problems.")
    text = told(table)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return int(bool(wrong))


def recorded(file):
    """Lines of an earlier run; the last one may have been cut off."""
    if file is None or not file.exists():
        return
    whole = file.read_text(encoding="utf-8").split("\n")
    for line in whole[:-1]:
        if line:
            yield json.loads(line)
    if whole[-1]:
        file.write_text("\n".join([*whole[:-1], ""]), encoding="utf-8")


def told(table):
    """The counts as a table in Markdown, the total last."""
    names = ["problems", *OWN, *SOLVERS, "limit", "certificates", "verified"]
    names += ["given up", "wrong claims", "refused", "oracle missed"]
    lines = ["| kind | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for label in [*(k for k in table if k != "total"), "total"]:
        cells = [f"{table[label][name]:,}" for name in names]
        lines.append(f"| {label.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
