"""The numbers that README and docs quote, taken from the tables of this folder.

    python benchmarks/figures.py            writes them into the pages
    python benchmarks/figures.py --check    says which pages disagree, and ends with 1

A quoted number is in a sentence of `QUOTES`, whose braces name a figure, or in a table
between two comments, `<!-- figures: NAME -->` and `<!-- figures: end -->`. A test runs
the check, so that a table that was measured again cannot disagree with the pages.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLES = Path(__file__).parent
SHAPE = re.compile(
    r"(?P<problem>[a-z]+?)(?P<inputs>\d*)_e(?P<members>\d+)_L(?P<layers>\d+)"
    r"_n(?P<width>\d+)_r\d+"
)
INPUTS = {"peaks": 2, "beale": 2, "perm": 3, "spring": 5, "concrete": 8, "wine": 11}


@dataclass(frozen=True)
class Row:
    """A line of a benchmark's table: an instance, and a cell for each column."""

    name: str
    cells: dict[str, str]

    def seconds(self, column: str = "engine") -> float | None:
        """How long the proof took; ``None`` if there is none."""
        found = re.fullmatch(r"([\d.]+) s", self.cells[column])
        return None if found is None else float(found[1])

    @property
    def num_inputs(self) -> int:
        shape = SHAPE.fullmatch(self.name)
        return int(shape["inputs"] or INPUTS[shape["problem"]])

    @property
    def shape(self) -> str:
        """Members x layers x width."""
        shape = SHAPE.fullmatch(self.name)
        return "x".join(shape[part] for part in ("members", "layers", "width"))

    @property
    def title(self) -> str:
        return f"{SHAPE.fullmatch(self.name)['problem'].title()} {self.shape}"


def rows_of(table: str) -> list[Row]:
    """The lines of a table that are instances."""
    columns, rows = [], []
    for line in (TABLES / table).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "instance":
            columns = cells
        elif SHAPE.fullmatch(cells[0]):
            rows.append(Row(cells[0], dict(zip(columns, cells, strict=True))))
    return rows


def table_by(table: str, head: str) -> list[dict[str, str]]:
    """The lines of the table whose first column is called so."""
    columns, rows = [], []
    for line in (TABLES / table).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == head:
            columns = cells
        elif not line.startswith("|"):
            columns = []
        elif columns and not cells[0].startswith("---"):
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def mean_ratio(table: str, of: str) -> float:
    """A line `geometric mean of X / engine` below a table."""
    text = (TABLES / table).read_text(encoding="utf-8")
    return float(
        re.search(rf"geometric mean of {re.escape(of)} / engine: ([\d.]+)", text)[1]
    )


def proved(rows: list[Row], column: str = "engine", within: float = 1e9) -> int:
    """How many of these are proved within some seconds."""
    times = [row.seconds(column) for row in rows]
    return sum(time is not None and time <= within for time in times)


def rounded(number: float) -> str:
    """Two digits that count: 237.6 is 240."""
    return f"{float(f'{number:.2g}'):,.0f}"


def floored(number: float) -> str:
    """Two digits that count, for what is at least so much: 165.3 is 160."""
    size = 10 ** (math.floor(math.log10(number)) - 1)
    return f"{math.floor(number / size) * size:,.0f}"


def figures_of_sets() -> dict[str, object]:
    """Nodes on a feasible set as multiples of the box's; of categories, as multiples of
    what each choice takes by itself."""
    kinds = {row["set"]: row for row in table_by("sets.md", "set")}
    ensembles = table_by("sets.md", "ensemble")

    def ratios(kind: str, *problems: str) -> list[float]:
        """Means of the draws, of ensembles all of whose draws were proved."""
        cells = [r[kind] for r in ensembles if r["ensemble"].startswith(problems)]
        found = [re.fullmatch(r"([\d.]+)(?: \([\d.]+\))?", cell) for cell in cells]
        return [float(one[1]) for one in found if one]

    def mean(kind: str, *problems: str) -> float:
        return statistics.geometric_mean(ratios(kind, *problems))

    means = {kind: float(row["nodes, mean"]) for kind, row in kinds.items()}
    below = [mean for kind, mean in means.items() if kind != "categories" and mean < 1]
    rows, more_rows = kinds["3 rows"], kinds["5 rows"]
    hull, categories = kinds["hull, up to 5 inputs"], kinds["categories"]
    many = ratios("categories", "spring", "concrete")
    within = {}
    for name, row in {
        "rows": rows, "more_rows": more_rows, "hull": hull, "categories": categories
    }.items():  # fmt: skip
        words = row["within it"].split()
        within |= {f"{name}_within": words[0], f"{name}_of": words[-1]}
    return within | {
        "sets_least": f"{min(below):.2f}",
        "sets_most": f"{max(below):.2f}",
        "rows_concrete": f"{mean('3 rows', 'concrete'):.1f}",
        "rows_largest": f"{float(rows['largest']):.1f}",
        "more_rows_largest": f"{float(more_rows['largest']):.1f}",
        "near": f"{means['near 1 row, 0.1']:.1f}",
        "near_concrete": f"{mean('near 1 row, 0.1', 'concrete'):.1f}",
        "hull_more": f"{100 * (float(hull['largest']) - 1):.0f}",
        "categories_peaks": f"{ratios('categories', 'peaks')[0]:.1f}",
        "categories_beale": f"{ratios('categories', 'beale')[0]:.1f}",
        "categories_perm": f"{mean('categories', 'perm'):.1f}",
        "categories_many": f"{max(many):.2f}",
        "choices": f"{1 / statistics.geometric_mean(many):.0f}",
    }


def figures_of_peers() -> dict[str, object]:
    """Other packages beside `auto`; their means are lower bounds."""
    ways = [r for r in table_by("peers.md", "way") if not r["way"].startswith("ennopt")]
    times = [float(row["times as long"].split()[-1]) for row in ways]
    wins = [int(row["proved"]) for row in ways]
    ours = [row["ennopt auto"] for row in table_by("peers.md", "ensemble")]
    return {
        "peers": len(ours),
        "peers_auto": sum(bool(re.match(r"[\d.]+ s", cell)) for cell in ours),
        "peers_least": floored(min(times)),
        "peers_most": floored(max(times)),
        "peers_worst": min(wins),
        "peers_best": max(wins),
    }


def figures_of_certificates() -> dict[str, object]:
    """The checker's time beside the search's."""
    rows = rows_of("certificates.md")
    ratios = {row.title: float(row.cells["ratio"]) for row in rows}
    return {
        "checks": len(rows),
        "check_least": f"{min(ratios.values()):.0f}",
        "check_most": f"{max(ratios.values()):.0f}",
        "check_within": sum(ratio <= 10.0 for ratio in ratios.values()),
        "check_slowest": max(ratios, key=lambda name: ratios[name]),
    }


def figures() -> dict[str, str]:
    """Every figure that is quoted, by name."""
    paper, many = rows_of("engine.md"), rows_of("many_inputs.md")
    slowest = max(paper, key=lambda row: row.seconds() or 1e9)
    twelve = [row for row in many if row.num_inputs >= 12]
    beside = rows_of("solvers.md")
    found = {
        "paper": len(paper),
        "paper_10": proved(paper, within=10),
        "paper_60": proved(paper, within=60),
        "paper_120": proved(paper, within=120),
        "slowest": slowest.title,
        "slowest_seconds": f"{slowest.seconds():.0f}",
        "most_mb": max(int(row.cells["MB"]) for row in paper),
        "beside": len(beside),
        "beside_best": rounded(mean_ratio("solvers.md", "the best of highs and scip")),
        "many": len(many),
        "many_neurons": proved(many),
        "many_box": proved(many, "box"),
        "many_scip": proved(many, "scip"),
        "many_highs": proved(many, "highs"),
        "twelve": len(twelve),
        "twelve_neurons": proved(twelve),
        "twelve_scip": proved(twelve, "scip"),
        "twelve_highs": proved(twelve, "highs"),
    }
    found |= figures_of_sets() | figures_of_peers() | figures_of_certificates()
    for solver in ("highs", "scip", "gurobi"):
        found[f"beside_{solver}"] = f"{mean_ratio('solvers.md', solver):.0f}"
    return {name: str(figure) for name, figure in found.items()}


QUOTES = {
    "README.md": [
        "On {paper} ensembles of the paper's sizes (2 to 11 inputs, 120 to 800 "
        "neurons) ennopt proves {paper_10} optima within 10 seconds each and all "
        "{paper_120} within two minutes",
        "On the {beside} smallest of ours ennopt is {beside_best} times faster than "
        "the better of HiGHS and SCIP",
        "Of {twelve} ensembles with 12 to 60 inputs it proves {twelve_neurons} within "
        "15 seconds, SCIP {twelve_scip} and HiGHS {twelve_highs}",
        "took at least {peers_least} to {peers_most} times as long as ennopt in the "
        "geometric mean, and proved {peers_worst} to {peers_best} of {peers} ensembles "
        "within a minute each, where ennopt proves {peers_auto}",
    ],
    "docs/constraints.md": [
        "on the concrete data three random constraints took {rows_concrete} times as "
        "many nodes as the box in the mean, and {rows_largest} times as many in the "
        "worst draw",
        "A hull took up to {hull_more}% more nodes than the box",
    ],
    "docs/discrete.md": [
        "it took about {choices} times the nodes of one search over all choices",
    ],
    "docs/trust.md": [
        "it took {near} times as many nodes as the ranges of the inputs alone in the "
        "mean, and {near_concrete} times as many on the concrete data",
    ],
    "docs/proof.md": [
        "Checking {checks} certificates took {check_least} to {check_most} times the "
        "search's own time",
        "{check_within} of these keep to it; {check_slowest} is the furthest above it",
    ],
    "docs/engine.md": [
        "{paper_10} proved within 10 s, {paper_60} within a minute, the slowest, "
        "{slowest}, in {slowest_seconds} s; at most {most_mb} MB",
        "{beside_highs} times faster than HiGHS, {beside_scip} times than SCIP, "
        "{beside_gurobi} times than Gurobi in the geometric mean",
        "of {many} ensembles with 8 to 60 inputs: `neurons` proves {many_neurons}, "
        "SCIP {many_scip}, HiGHS {many_highs}, `box` {many_box}",
        "most sets take fewer nodes than their box, {sets_least} to {sets_most} times "
        "as many; near a row of data, within 0.1 of the ranges, it is {near} times",
        "should take at most 1.5 times the nodes of the box, and {rows_within} of "
        "{rows_of} runs do",
        "at most 4 times, and {more_rows_within} of {more_rows_of} runs do",
        "the mean of three constraints is {rows_concrete} and the largest "
        "{rows_largest}; five took {more_rows_largest} times as many",
        "no more nodes than the box, and {hull_within} of {hull_of} runs do",
        "takes by itself, and {categories_within} of {categories_of} runs do",
        "it took at most {categories_many} of them",
        "takes {categories_peaks} and {categories_beale} times as many",
        "the search takes {categories_perm} times as many as all choices together",
    ],
}
"""Sentences of pages. Where lines break does not matter."""


def table_of(head: str, shapes: list[str], lines: dict[str, list[str]]) -> str:
    """A table in Markdown with a column for each shape."""
    rows = [[head, *shapes], ["---"] * (len(shapes) + 1)]
    rows += [[name, *cells] for name, cells in lines.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shapes_of(rows: list[Row]) -> list[str]:
    """The shapes that occur, narrow and shallow ones first."""
    return sorted(
        {row.shape for row in rows},
        key=lambda shape: [int(number) for number in shape.split("x")][::-1],
    )


def sizes_table() -> str:
    """Time to a proof by problem and shape."""
    rows = rows_of("engine.md")
    shapes, lines = shapes_of(rows), {}
    for problem, inputs in sorted(INPUTS.items(), key=lambda item: item[1]):
        cells = {row.shape: row for row in rows if row.name.startswith(problem)}
        lines[f"{problem.title()}, {inputs} inputs"] = [
            told(cells[shape]) for shape in shapes
        ]
    return table_of("ensemble", shapes, lines)


def inputs_table() -> str:
    """How many ensembles of each shape and number of inputs are proved."""
    rows = rows_of("many_inputs.md")
    shapes, lines = shapes_of(rows), {}
    for inputs in sorted({row.num_inputs for row in rows}):
        lines[str(inputs)] = cells = []
        for shape in shapes:
            some = [r for r in rows if r.shape == shape and r.num_inputs == inputs]
            best = [r for r in some if proved([r]) or proved([r], "box")]
            cells.append(f"{len(best)} of {len(some)}" if some else "")
    return table_of("inputs", shapes, lines)


def embedding_table() -> str:
    """A decision inside a solver's model: seconds, and nodes, by who states it."""
    rows = [
        row
        for row in table_by("embedding.md", "decision")
        if row["decision"] == "least cost"
    ]
    ways = ["ennopt, crown", "ennopt, lp", "ennopt, search"]
    lines: dict[str, list[str]] = {}
    for row in rows:
        ours = row["stated by"] in ways
        seconds = float(row["s to state"]) + float(row["s to solve"])
        cell = f"{seconds:.1f} s, {row['nodes']} nodes"
        name = "" if ours else f"{row['stated by']}: "
        lines.setdefault(row["solver"], []).append(name + cell)
    shown = [f'`bounds="{way.split()[-1]}"`' for way in ways]
    return table_of("solver", [*shown, "another package"], lines)


def certificates_table() -> str:
    """Certificates' sizes, and the checker's time beside the search's."""
    columns = ["nodes", "leaves", "bytes", "pieces", "search, s", "check, s", "ratio"]
    lines = {
        row.title: [row.cells[column] for column in columns]
        for row in rows_of("certificates.md")
    }
    return table_of("ensemble", columns, lines)


def told(row: Row) -> str:
    """The time of a proof with as many digits as count, or the gap."""
    time = row.seconds()
    if time is None:
        return row.cells["engine"]
    digits = 2 if time < 1 else 1 if time < 10 else 0
    return f"{time:.{digits}f} s"


BLOCKS = {
    "sizes": sizes_table,
    "inputs": inputs_table,
    "embedding": embedding_table,
    "certificates": certificates_table,
}


def with_figures(page: str, text: str, found: dict[str, str]) -> str:
    """The text of a page with every quoted figure as it is in the tables."""
    for quote in QUOTES.get(page, ()):
        text = _with_quote(page, text, quote, found)
    for name, table in BLOCKS.items():
        begin, end = f"<!-- figures: {name} -->\n", "<!-- figures: end -->"
        before, found_begin, rest = text.partition(begin)
        if found_begin:
            text = before + begin + table() + "\n" + end + rest.partition(end)[2]
    return text


def _with_quote(page: str, text: str, quote: str, found: dict[str, str]) -> str:
    """Replace the figures of one sentence and keep its line breaks."""
    parts = re.split(r"\{(\w+)\}", quote)
    figure = r"[A-Z][a-z]+ \d+x\d+x\d+|\d[\d,.]*"
    pattern = "".join(
        f"(?P<f{k}>{figure})"
        if k % 2
        else r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))
        for k, part in enumerate(parts)
    )
    matches = list(re.finditer(pattern, text))
    if len(matches) > 1:
        raise ValueError(
            f"Expected one sentence like {quote!r}, got {len(matches)} at {page}. "
            "Put more words around the figures."
        )
    match = matches[0] if matches else None
    if match is None:
        raise ValueError(
            f"Expected the sentence {quote!r}, got none like it at {page}. Put it "
            "back, or change QUOTES in benchmarks/figures.py."
        )
    for k in reversed(range(1, len(parts), 2)):
        start, end = match.span(f"f{k}")
        text = text[:start] + found[parts[k]] + text[end:]
    return text


def pages() -> list[str]:
    """The pages that quote figures."""
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "docs").glob("*.md"))
        if "<!-- figures: " in path.read_text(encoding="utf-8")
    ]
    return sorted({*QUOTES, *marked})


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(words).check
    found, wrong = figures(), []
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        right = with_figures(page, text, found)
        if right != text:
            wrong.append(page)
            if not check:
                (ROOT / page).write_text(right, encoding="utf-8")
    for page in wrong:
        print(f"{page}: {'disagrees with benchmarks/' if check else 'written'}")
    return int(check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
