"""How many nodes a proof will take, estimated from a sample of open nodes.

A search of boxes runs for some thousand nodes. Of the nodes that are open then, some
are chosen at random and searched to their end, each in a tree of its own that knows
the best value found. Their mean times the number of open nodes estimates the rest.
Nodes differ, so they are sorted by their bounds and one is drawn from each of as many
equal parts. A tree that does not end within `--most` nodes counts with what it has had,
and then the estimate is too low: the table says how many did not end.

    python benchmarks/tree_size.py out/deep/concrete_e5_L6_n40_r0.npz
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

import ennopt
from engine import machine
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.tree import Tree
from ennopt.network import Array
from ennopt.problem import Problem

GAP = 1e-4


def explored(tree: Tree, most: float, dive: int = 256) -> int:
    """Explore with one thread until nothing is open, or for so many nodes."""
    return tree.explore(most, math.inf, math.inf, dive, 1)


class Trees:
    """Trees of one problem, each with the best point known."""

    def __init__(self, path: Path, nodes: int) -> None:
        model = ennopt.load(path)
        self.problem = Canonical.of(Problem(model, Domain.of(None, model)))
        found = ennopt.maximize(model, method="box", threads=1, node_limit=nodes)
        self.best = found.x

    def made(self, nodes: Array | None = None) -> Tree:
        """A tree of these nodes, or of the whole domain."""
        tree = BoxSearch().scheme.open(self.problem, GAP)
        if nodes is None:
            tree.plant()
        else:
            tree.add(np.ascontiguousarray(nodes))
        tree.offer(self.best)
        return tree


def estimate(path: Path, first: int, sample: int, most: int, seed: int) -> str:
    """A row of the table."""
    trees = Trees(path, 2 * first)
    start = time.process_time()
    tree = trees.made()
    spent = bounded = explored(tree, first)
    nodes = tree.snapshot()
    words = "ended"
    if len(nodes):
        rng = np.random.default_rng(seed)
        parts = np.array_split(np.argsort(-nodes[:, 0]), min(sample, len(nodes)))
        sizes, unended = [], 0
        for part in parts:
            alone = trees.made(nodes[rng.choice(part)][None])
            sizes.append(explored(alone, most))
            unended += alone.open > 0
        counts = np.array([len(part) for part in parts])
        spent += sum(sizes)
        bounded += float(counts @ sizes)
        error = float(np.sqrt(np.sum(counts**2) * np.var(sizes)))
        words = f"± {error / bounded:.0%}, {unended} of {len(sizes)} not ended"
    taken = time.process_time() - start
    rate = spent / taken
    return (
        f"| {path.stem} | {bounded:,.0f} | {words} | {rate:,.0f} "
        f"| {bounded / rate:,.0f} |"
    )


HEAD = f"""# How large a tree will be

{{machine}}

`make bench-trees` writes this file: boxes, gap {GAP:g}, one thread, seconds of the
processor. A search runs for some thousand nodes; open nodes chosen at random are
searched to their end, and their mean times the number of open nodes estimates the rest
(`benchmarks/tree_size.py`).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ensembles", type=Path, nargs="+")
    parser.add_argument("--first", type=int, default=20_000, help="nodes of the whole")
    parser.add_argument("--sample", type=int, default=100, help="open nodes drawn")
    parser.add_argument("--most", type=int, default=100_000, help="nodes of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        "| ensemble | nodes | sampling error | nodes per second | seconds, one core |",
        "|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for path in options.ensembles:
        numbers = options.first, options.sample, options.most, options.seed
        lines.append(estimate(path, *numbers))
        print(lines[-1], flush=True)
    if options.out is not None:
        text = "\n".join([HEAD.format(machine=machine()), *lines, ""])
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
