"""One page that tells a study: protocol, tables and figures, the paper's beside ours.

The page is one file that needs no network. Every number in it comes from the record
or from the data of the paper.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ennopt.pages.charts import data_url
from ennopt.pages.render import filled, style
from ennopt.study import paper
from ennopt.study.figures import FIGURES, Figure
from ennopt.study.finding import Finding, geometric, to_markdown
from ennopt.study.measures import (
    PAPER_LIMIT,
    Clock,
    gap,
    labelled,
    solved,
    spent,
)
from ennopt.study.progress import as_time
from ennopt.study.reading import read, setting
from ennopt.study.record import Line, Results
from ennopt.study.table import MISSING, Table, written
from ennopt.study.tables import (
    BASELINE,
    BY_RUN,
    ENHANCED,
    TABLES,
    compute,
    enhanced_by_run,
)

ORDER = (
    "figure1", "figure2", "table1", "figure3", "figure4", "table2", "table3", "table4",
    "table5", "table6", "table7", "table8", "table9",
)  # fmt: skip
"""The items in the order of the paper."""

PAPER_REPLICAS = 3
"""Instances behind each row of the paper's Tables 6 and 7."""

FOLDER = "report"
PAGE = "report.html"


@dataclass(frozen=True)
class Report:
    """The items of a study, computed, and the page that shows them."""

    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    page: str
    reading: str = ""

    def write(self, directory: Path) -> Path:
        """Write the page and, beside it, each table and figure; return the page."""
        folder = directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            for suffix, text in (
                ("md", table.to_markdown()),
                ("tex", table.to_latex()),
                ("csv", table.to_csv()),
            ):
                file = folder / f"{table.name}.{suffix}"
                file.write_text(text, encoding="utf-8")
        for figure in self.figures:
            (folder / f"{figure.name}.svg").write_bytes(figure.svg)
            (folder / f"{figure.name}-tall.svg").write_bytes(figure.tall)
            (folder / f"{figure.name}.png").write_bytes(figure.png)
        if self.reading:
            (folder / "reading.md").write_text(self.reading, encoding="utf-8")
        page = directory / PAGE
        page.write_text(self.page, encoding="utf-8")
        return page


def make_report(results: Results, clock: Clock = "seconds") -> Report:
    """Compute every item that the study fills, and the page.

    Parameters
    ----------
    results
        What was planned and what ended.
    clock
        ``"nodes"`` leaves out dates, seconds and memory: two studies with node limits
        then give the same page, byte for byte.
    """
    places = {
        item: experiment["name"]
        for experiment in results.plan["experiments"]
        for item in experiment["items"]
    }
    tables, figures = {}, {}
    for item, experiment in places.items():
        runs = results.of(experiment)
        if not runs:
            continue
        failed = _failed_of(results, experiment)
        if item in TABLES:
            table = compute(item, runs, clock)
            tables[item] = replace(table, notes=table.notes + failed)
        else:
            figure = FIGURES[item](runs, clock)
            figures[item] = replace(figure, notes=figure.notes + failed)
    if "table7" in tables:
        tables[BY_RUN] = enhanced_by_run(results.of(places["table7"]), clock)
    # A reading compares seconds.
    findings = read(results) if clock == "seconds" else ()
    page = _page(results, tables, figures, places, findings, clock)
    told = to_markdown(findings, setting(results)) if findings else ""
    return Report(tuple(tables.values()), tuple(figures.values()), page, told)


def _failed_of(results: Results, experiment: str) -> tuple[str, ...]:
    """A note on the runs of an experiment that no number is of."""
    labels = [r["label"] for r in results.failed if r["experiment"] == experiment]
    if not labels:
        return ()
    told = ", ".join(f"{label} {count}" for label, count in Counter(labels).items())
    return (f"Runs that failed and are in no number: {told}.",)


# The page: plain data, which a template shows.


def _page(
    results: Results, tables: dict[str, Table], figures: dict[str, Figure],
    places: dict[str, str], findings: Sequence[Finding], clock: Clock,
) -> str:  # fmt: skip
    plan = results.plan
    names = [name for name in ORDER if name in places]
    names += [name for name in tables if name not in ORDER]
    links = [("summary", "Summary")]
    if findings:
        links.append(("reading", "What holds"))
    links += [(name, _short_name(name)) for name in names]
    links += [("protocol", "Protocol"), ("paper", "The paper"), ("machine", "Machine")]
    if results.failed:
        links.append(("failures", "Failures"))
    badges = [
        f"profile {plan['profile']}", f"{len(results.done)} of {results.planned} runs",
        *([_period(results)] if clock == "seconds" else []),
        f"ennopt {plan['versions']['ennopt']}",
    ]  # fmt: skip
    return filled(
        "study.html",
        style=style("study.css"),
        plan=plan,
        badges=badges,
        links=links,
        alerts=_alerts(results),
        cards=_cards(results, clock),
        done=len(results.done),
        findings=findings,
        setting=setting(results) if findings else "",
        marks=MARKS,
        items=[
            _item(name, tables.get(name), figures.get(name), places.get(name, ""))
            for name in names
        ],
        protocol=[_protocol(results, one) for one in plan["experiments"]],
        paper=paper,
        deviations=deviations(results),
        machine=_machine(results, clock),
        failed=results.failed,
    )


def _alerts(results: Results) -> list[str]:
    """What is missing on the page."""
    missing = results.planned - len(results.done) - len(results.failed)
    warnings = []
    if missing:
        warnings.append(f"{missing} of {results.planned} runs have not ended yet.")
    if results.failed:
        count = len(results.failed)
        subject = (
            "1 run failed and is" if count == 1 else f"{count} runs failed and are"
        )
        warnings.append(f"{subject} in no table; see below.")
    return warnings


def _cards(results: Results, clock: Clock) -> list[dict[str, Any]]:
    """For each method of each benchmark: how much it solved, how fast."""
    return [
        _card(label, group, clock)
        for experiment in results.plan["experiments"]
        if experiment["kind"] == "solve" and "table1" in experiment["items"]
        for label, group in labelled(results.of(experiment["name"])).items()
    ]


MARKS = {
    "holds": "yes", "holds partly": "partly", "does not hold": "no",
    "not measured": "open",
}  # fmt: skip
"""Style of each verdict."""


def _card(label: str, runs: list[Line], clock: Clock) -> dict[str, Any]:
    count = sum(map(solved, runs))
    middle = geometric(spent(run, clock) for run in runs)
    left = [gap(run) for run in runs if not solved(run)]
    unit = "s" if clock == "seconds" else "nodes"
    limits = {run["limits"]["seconds"] for run in runs}
    allowed = ", ".join(f"{s:,.6g} s" for s in sorted(limits - {None}))
    worst = (
        f"largest gap left {written(max(left), 'percent')}" if left else "no gap left"
    )
    return {
        "label": label,
        "solved": count,
        "runs": len(runs),
        "within": f" within {allowed}" if allowed and clock == "seconds" else "",
        "share": f"{100 * count / len(runs):.1f}",
        "words": f"geometric mean {written(middle, 'seconds')} {unit}, unsolved at "
        f"their limit; {worst}",
        "theirs": _theirs(label),
    }


def _theirs(label: str) -> str:
    """What the paper's tables say of the same method."""
    source = {BASELINE: "table6", ENHANCED: "table7"}.get(label)
    if source is None:
        return ""
    rows = paper.rows(source)
    count = sum(row["solved"] for row in rows)
    return (
        f"paper: {count} of {PAPER_REPLICAS * len(rows)} solved in "
        f"{PAPER_LIMIT:,.0f} s each"
    )


def _item(
    name: str, table: Table | None, figure: Figure | None, experiment: str
) -> dict[str, Any]:
    """A table or a figure, with the files that can be downloaded."""
    if figure is not None:
        found: dict[str, Any] = {
            "title": figure.title,
            "notes": figure.notes,
            "figure": {
                "wide": _inline(figure, figure.svg),
                "tall": _inline(figure, figure.tall, "tall-"),
                "caption": figure.caption,
            },
        }
        files: tuple[tuple[str, str, str, bytes], ...] = (
            ("svg", "SVG", "image/svg+xml", figure.svg),
            ("png", "PNG", "image/png", figure.png),
        )
    elif table is not None:
        found = {"title": table.title, "notes": table.notes, "table": table.shown()}
        files = tuple(
            (suffix, called, kind, text.encode())
            for suffix, called, kind, text in (
                ("csv", "CSV", "text/csv", table.to_csv()),
                ("md", "Markdown", "text/markdown", table.to_markdown()),
                ("tex", "LaTeX", "application/x-tex", table.to_latex()),
            )
        )
    else:
        return {
            "name": name, "title": _short_name(name), "experiment": experiment
        }  # fmt: skip
    found["files"] = [
        {"file": f"{name}.{suffix}", "name": called, "href": data_url(kind, content)}
        for suffix, called, kind, content in files
    ]
    return {"name": name, **found}


def _inline(figure: Figure, drawing: bytes, prefix: str = "") -> str:
    """The drawing as part of the page: sharp at any size, readable by search."""
    svg = drawing.decode()
    start = svg.index("<svg")
    # Names inside a drawing must not meet those of another drawing on the page.
    body = svg[start:]
    for mark in ('id="', 'href="#', "url(#"):
        body = body.replace(mark, f"{mark}{figure.name}-{prefix}")
    title = f' role="img" aria-label="{html.escape(figure.title)}"'
    return body.replace("<svg", f"<svg{title}", 1)


def _protocol(results: Results, experiment: dict[str, Any]) -> dict[str, Any]:
    """What an experiment fills, and how."""
    facts = [("fills", ", ".join(map(_short_name, experiment["items"])) or MISSING)]
    facts += _counted(results, experiment)
    for key in ("instances", "data"):
        if key in experiment:
            facts.append((key, _facts(experiment[key])))
    if "limits_text" in experiment:
        facts.append(("limits", experiment["limits_text"]))
        facts.append(("threads of a run", str(experiment["threads"])))
    if experiment.get("seconds_of") == "processor":
        facts.append(("seconds", "of the processor, in all tables and figures"))
    if "seeds" in experiment:
        facts.append(("seeds", ", ".join(map(str, experiment["seeds"]))))
    return {
        "name": experiment["name"], "note": experiment["note"], "facts": facts,
        "methods": experiment.get("methods", {}),
    }  # fmt: skip


def _counted(results: Results, experiment: dict[str, Any]) -> list[tuple[str, str]]:
    """How much of an experiment was run here, and how much the paper has."""
    own = [run for run in results.runs if run["experiment"] == experiment["name"]]
    names = {run["subject"]["name"] for run in own}
    theirs = next(
        (count for item, count in paper.COUNTS.items() if item in experiment["items"]),
        None,
    )
    beside = f" (paper: {theirs:,})" if theirs else ""
    what = {"solve": "instances", "quality": "models", "selection": "searches"}
    text = f"{len(own)} on {len(names)} {what[experiment['kind']]}{beside}"
    known = [
        run["subject"]["published"] for run in own if "published" in run["subject"]
    ]
    if known and all(known):
        text += ", all of them published"
    return [("runs", text)]


def _facts(table: dict[str, Any]) -> str:
    words = []
    for name, value in table.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        words.append(f"{name.replace('_', ' ')} {text}")
    return "; ".join(words)


def deviations(results: Results) -> tuple[str, ...]:
    """What the study does in another way, as far as its methods tell."""
    methods = " ".join(
        text
        for experiment in results.plan["experiments"]
        for text in experiment.get("methods", {}).values()
    )
    found = [paper.STARTS_FROM_LPS]
    found.append(
        paper.CUTS_IN_TREE if "tree_seconds=" in methods else paper.CUTS_AT_ROOT
    )
    if "presolve=False" not in methods:
        found.append(paper.PRESOLVE_ON)
    return (*found, paper.GAPS_ASSUMED)


def _machine(results: Results, clock: Clock) -> list[tuple[str, str]]:
    facts = [*_machines(results, clock), *results.plan["versions"].items()]
    if clock == "seconds" and results.runs:
        work = sum(run["seconds"] for run in results.runs)
        facts.append(("work", f"{as_time(work)} of run time"))
        hosts = {run["host"] for run in results.runs} - {None}
        facts.append(("computers", len(hosts)))
        peaks = [run["memory"] for run in results.runs if run["memory"]]
        if peaks:
            facts.append(("peak memory of a run", f"{max(peaks) / 2**30:.2f} GiB"))
    return [(name, str(fact)) for name, fact in facts]


def _machines(results: Results, clock: Clock) -> list[tuple[str, Any]]:
    """The machine that did the runs, fact by fact, or each of several in one line."""
    planned = results.plan["machine"]
    if clock == "nodes":  # where a run was done does not change it
        return list(planned.items())
    # Lines of older versions do not tell: there, the plan's was the only one.
    found = [run.get("machine") or planned for run in results.done] or [planned]
    texts = [", ".join(_told(fact, one[fact]) for fact in one) for one in found]
    if len(set(texts)) == 1:
        return list(found[0].items())
    counts = Counter(texts).most_common()
    return [("machine", f"{text} (runs: {count})") for text, count in counts]


def _told(fact: str, value: Any) -> str:
    return f"{value} cores" if fact == "cores" else str(value)


def _period(results: Results) -> str:
    """The days on which the runs ended."""
    days = sorted({run["finished"][:10] for run in results.runs})
    if not days:
        return str(results.plan["date"])[:10]
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _short_name(item: str) -> str:
    if item == BY_RUN:
        return "E-NN by run"
    for word in ("table", "figure"):
        if item.startswith(word):
            return f"{word.capitalize()} {item.removeprefix(word)}"
    return item
