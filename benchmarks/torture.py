"""Many small random problems: solved, certified, checked, compared with enumeration.

    python benchmarks/torture.py [COUNT] [FIRST_SEED]

For each problem: the value and the bound must agree with the exact maximum, which comes
from the enumeration of all activation patterns; the certificate must be verified; and a
claim a billionth below the exact maximum must not be. Prints counts.
"""

import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ennopt import Problem, solve
from ennopt.certificate.checker import check
from ennopt.certificate.record import Certificate
from oracles import DEGENERATE, exact_maximum, random_case

BELOW = 1e-9
"""How far below the maximum a claim is that must be refused, relatively."""


def problem(seed):
    """A random ensemble and box; every fourth is degenerate in one of several ways."""
    rng = np.random.default_rng(seed)
    if seed % 4:
        return "random", random_case(rng)
    kind = list(DEGENERATE)[seed // 4 % len(DEGENERATE)]
    return kind, DEGENERATE[kind](rng)


def tried(seed, file):
    """What happened to one problem: words to be counted."""
    kind, (ensemble, domain) = problem(seed)
    sense, sign = (("max", 1.0), ("min", -1.0))[seed % 2]
    answer = solve(Problem(ensemble, domain, sense), "box", threads=1, certificate=file)
    maximized = ensemble if sign > 0 else ensemble.negated()
    exact, size = exact_maximum(maximized, domain)[0], 1e-9
    size *= max(1.0, abs(exact))
    if not sign * answer.value <= exact + size or sign * answer.bound < exact - size:
        yield f"{kind}: value or bound wrong at seed {seed}"
    claim = Certificate.read(file)
    if not check(claim, ensemble):
        yield f"{kind}: certificate not verified at seed {seed}"
    low = sign * (exact - BELOW * max(1.0, abs(exact)))
    alone = replace(claim, x=None, value=float("nan"), bound=low)
    if check(alone, ensemble, most_pieces=3000):
        yield f"{kind}: wrong claim verified at seed {seed}"
    yield f"{kind}: done"


def main():
    count, first = (int(a) for a in (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1 :]))
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            counts.update(tried(seed, Path(folder) / "proof.cert"))
    for words, times in sorted(counts.items()):
        print(f"{times:>6}  {words}")
    return int(any("done" not in words for words in counts))


if __name__ == "__main__":
    sys.exit(main())
