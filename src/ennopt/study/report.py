"""One page that tells a study: protocol, tables and figures, the paper's beside ours.

The page is one file that needs no network. Every number in it comes from the record
or from the data of the paper.
"""

from __future__ import annotations

import base64
import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

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


# The page.


def _page(
    results: Results, tables: dict[str, Table], figures: dict[str, Figure],
    places: dict[str, str], findings: Sequence[Finding], clock: Clock,
) -> str:  # fmt: skip
    plan = results.plan
    items = [name for name in ORDER if name in places]
    items += [name for name in tables if name not in ORDER]
    sections = [
        _summary(results, clock),
        _reading(findings, results),
        *(_item(n, tables.get(n), figures.get(n), places.get(n, "")) for n in items),
        _protocol(results),
        _differences(results),
        _machine(results, clock),
        _failures(results),
    ]
    links = [("summary", "Summary")]
    if findings:
        links.append(("reading", "What holds"))
    links += [(name, _short_name(name)) for name in items]
    links += [("protocol", "Protocol"), ("paper", "The paper"), ("machine", "Machine")]
    if results.failed:
        links.append(("failures", "Failures"))
    style = resources.files(__package__).joinpath("report.css").read_text("utf-8")
    navigation = "".join(f'<a href="#{to}">{_e(text)}</a>' for to, text in links)
    date = "" if clock == "nodes" else f"<span>{_e(_period(results))}</span>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_e(plan['title'])}</title><style>{style}</style></head><body>"
        f'<header><p class="kicker">ennopt study</p><h1>{_e(plan["title"])}</h1>'
        f'<p class="lead">{_e(plan["description"])}</p><p class="facts">'
        f"<span>profile {_e(plan['profile'])}</span>"
        f"<span>{len(results.done)} of {results.planned} runs</span>{date}"
        f"<span>ennopt {_e(plan['versions']['ennopt'])}</span></p></header>"
        f"<nav>{navigation}</nav><main>{''.join(sections)}</main>"
        "<footer>Every number on this page is computed from <code>results.jsonl</code> "
        "of the study; columns and remarks marked as the paper's are printed in "
        f"{_e(paper.SOURCE)}.</footer></body></html>\n"
    )


def _summary(results: Results, clock: Clock) -> str:
    """A card for each method of each benchmark: how much it solved, how fast."""
    cards = []
    for experiment in results.plan["experiments"]:
        runs = results.of(experiment["name"])
        if experiment["kind"] != "solve" or "table1" not in experiment["items"]:
            continue
        for label, group in labelled(runs).items():
            cards.append(_card(label, group, clock))
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
    alert = "".join(f'<p class="alert">{_e(text)}</p>' for text in warnings)
    body = f'<div class="cards">{"".join(cards)}</div>' if cards else ""
    if not cards and not alert:
        body = f"<p>{len(results.done)} runs ended.</p>"
    return _section("summary", "Summary", alert + body)


MARKS = {
    "holds": "yes", "holds partly": "partly", "does not hold": "no",
    "not measured": "open",
}  # fmt: skip
"""Style of each verdict."""


def _reading(findings: Sequence[Finding], results: Results) -> str:
    """The conclusions of the paper, each with a verdict and what it rests on."""
    if not findings:
        return ""
    entries = []
    for finding in findings:
        caveats = "".join(f"<li>{_e(text)}</li>" for text in finding.caveats)
        notes = f'<ul class="notes">{caveats}</ul>' if caveats else ""
        entries.append(
            f'<li><p class="claim"><b class="{MARKS[finding.verdict]}">'
            f"{_e(finding.verdict)}</b> {_e(finding.claim)}</p>"
            f"<p>{_e(finding.measured)}</p>{notes}"
            f'<p class="where">{_e(finding.source)}; {finding.runs} runs</p></li>'
        )
    body = f'<p>{_e(setting(results))}</p><ul class="reading">{"".join(entries)}</ul>'
    return _section("reading", "What holds of the paper's section 5", body)


def _card(label: str, runs: list[Line], clock: Clock) -> str:
    count = sum(map(solved, runs))
    share = count / len(runs)
    middle = geometric(spent(run, clock) for run in runs)
    left = [gap(run) for run in runs if not solved(run)]
    unit = "s" if clock == "seconds" else "nodes"
    limits = {run["limits"]["seconds"] for run in runs}
    allowed = ", ".join(f"{s:,.6g} s" for s in sorted(limits - {None}))
    within = f" within {allowed}" if allowed and clock == "seconds" else ""
    worst = (
        f"largest gap left {written(max(left), 'percent')}" if left else "no gap left"
    )
    return (
        f'<div class="card"><h3>{_e(label)}</h3><p class="big">{count}'
        f"<small> of {len(runs)} solved{within}</small></p>"
        f'<div class="meter"><i style="width:{100 * share:.1f}%"></i></div>'
        f'<p class="how">geometric mean {written(middle, "seconds")} {unit}, unsolved '
        f"at their limit; {worst}</p>{_theirs(label)}</div>"
    )


def _theirs(label: str) -> str:
    """What the paper's tables say of the same method."""
    source = {BASELINE: "table6", ENHANCED: "table7"}.get(label)
    if source is None:
        return ""
    rows = paper.rows(source)
    count = sum(row["solved"] for row in rows)
    return (
        f'<p class="theirs">paper: {count} of {PAPER_REPLICAS * len(rows)} solved in '
        f"{PAPER_LIMIT:,.0f} s each</p>"
    )


def _item(
    name: str, table: Table | None, figure: Figure | None, experiment: str
) -> str:
    if figure is not None:
        notes = "".join(f"<li>{_e(note)}</li>" for note in figure.notes)
        png = _data("image/png", figure.png)
        svg = _data("image/svg+xml", figure.svg)
        body = (
            f'<figure><div class="drawing wide">{_inline(figure, figure.svg)}</div>'
            f'<div class="drawing tall">{_inline(figure, figure.tall, "tall-")}</div>'
            f"<figcaption>{_e(figure.caption)}</figcaption></figure>"
            f'<ul class="notes">{notes}</ul><p class="files">'
            f'<a download="{name}.svg" href="{svg}">SVG</a>'
            f'<a download="{name}.png" href="{png}">PNG</a></p>'
        )
        return _section(name, figure.title, body)
    if table is not None:
        notes = "".join(f"<li>{_e(note)}</li>" for note in table.notes)
        files = "".join(
            f'<a download="{name}.{suffix}" href="{_data(kind, text.encode())}">'
            f"{suffix.upper() if suffix == 'csv' else title}</a>"
            for suffix, kind, title, text in (
                ("csv", "text/csv", "CSV", table.to_csv()),
                ("md", "text/markdown", "Markdown", table.to_markdown()),
                ("tex", "application/x-tex", "LaTeX", table.to_latex()),
            )
        )
        body = (
            f'<div class="frame"><div class="scroll" tabindex="0">{table.to_html()}'
            "</div></div>"
            f'<ul class="notes">{notes}</ul><p class="files">{files}</p>'
        )
        return _section(name, table.title, body)
    return _section(
        name,
        _short_name(name),
        f"<p>No run of the experiment {_e(experiment)} has ended yet.</p>",
    )


def _inline(figure: Figure, drawing: bytes, prefix: str = "") -> str:
    """The drawing as part of the page: sharp at any size, readable by search."""
    svg = drawing.decode()
    start = svg.index("<svg")
    # Names inside a drawing must not meet those of another drawing on the page.
    body = svg[start:]
    for mark in ('id="', 'href="#', "url(#"):
        body = body.replace(mark, f"{mark}{figure.name}-{prefix}")
    title = f' role="img" aria-label="{_e(figure.title)}"'
    return body.replace("<svg", f"<svg{title}", 1)


def _protocol(results: Results) -> str:
    parts = []
    for experiment in results.plan["experiments"]:
        facts = [("fills", ", ".join(map(_short_name, experiment["items"])) or MISSING)]
        facts += _counted(results, experiment)
        for key, words in (("instances", "instances"), ("data", "data")):
            if key in experiment:
                facts.append((words, _facts(experiment[key])))
        if "limits_text" in experiment:
            facts.append(("limits", experiment["limits_text"]))
            facts.append(("threads of a run", str(experiment["threads"])))
        if "seeds" in experiment:
            facts.append(("seeds", ", ".join(map(str, experiment["seeds"]))))
        rows = "".join(f"<dt>{_e(k)}</dt><dd>{_e(v)}</dd>" for k, v in facts)
        methods = "".join(
            f"<dt>{_e(label)}</dt><dd><code>{_e(text)}</code></dd>"
            for label, text in experiment.get("methods", {}).items()
        )
        note = f"<p>{_e(experiment['note'])}</p>" if experiment["note"] else ""
        parts.append(f"<h3>{_e(experiment['name'])}</h3>{note}<dl>{rows}{methods}</dl>")
    return _section("protocol", "Protocol", "".join(parts))


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


def _differences(results: Results) -> str:
    unknown, other = (
        "".join(f"<li>{_e(text)}</li>" for text in texts)
        for texts in (paper.NOT_REPEATABLE, deviations(results))
    )
    body = (
        f"<p>{_e(paper.SOURCE)}. {_e(paper.PROTOCOL)}</p><p>Where the paper does not "
        f"say enough to repeat it exactly:</p><ul>{unknown}</ul>"
        f"<p>What we do in another way:</p><ul>{other}</ul>"
    )
    return _section("paper", "The paper's own figures", body)


def _machine(results: Results, clock: Clock) -> str:
    facts = [*_machines(results, clock), *results.plan["versions"].items()]
    rows = "".join(f"<dt>{_e(k)}</dt><dd>{_e(str(v))}</dd>" for k, v in facts)
    if clock == "seconds" and results.runs:
        work = sum(run["seconds"] for run in results.runs)
        rows += f"<dt>work</dt><dd>{_e(as_time(work))} of run time</dd>"
        hosts = {run["host"] for run in results.runs} - {None}
        rows += f"<dt>computers</dt><dd>{len(hosts)}</dd>"
        peaks = [run["memory"] for run in results.runs if run["memory"]]
        if peaks:
            rows += (
                f"<dt>peak memory of a run</dt><dd>{max(peaks) / 2**30:.2f} GiB</dd>"
            )
    return _section("machine", "Machine and versions", f"<dl>{rows}</dl>")


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


def _failures(results: Results) -> str:
    if not results.failed:
        return ""
    items = "".join(
        f"<li><b>{_e(run['subject']['name'])}</b> {_e(run['label'])}: "
        f"<code>{_e(run['error'])}</code></li>"
        for run in results.failed
    )
    body = (
        f"<ul>{items}</ul><p>They are tried again by "
        "<code>ennopt study run --retry</code>.</p>"
    )
    return _section("failures", "Runs that failed", body)


def _period(results: Results) -> str:
    """The days on which the runs ended."""
    days = sorted({run["finished"][:10] for run in results.runs})
    if not days:
        return str(results.plan["date"])[:10]
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{_e(title)}</h2>{body}</section>'


def _short_name(item: str) -> str:
    if item == BY_RUN:
        return "E-NN by run"
    for word in ("table", "figure"):
        if item.startswith(word):
            return f"{word.capitalize()} {item.removeprefix(word)}"
    return item


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _e(text: object) -> str:
    return html.escape(str(text))
