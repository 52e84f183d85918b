"""The page tells what the record holds, in a real browser, without a network."""

import json
import re
import struct
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from chromium import BROWSER, needs_browser
from ennopt.study import paper
from ennopt.study.figures import (
    FIGURES,
    SMALLEST_TALL,
    boxes,
    figure1,
    figure3,
    figure4,
)
from ennopt.study.record import select
from ennopt.study.report import ORDER, PAGE, deviations, make_report
from ennopt.study.tables import compute


def quality(make_line, problem="beale", sampling="lhs", kind="single", r=0, value=1.0):
    subject = {
        "name": f"{problem}_{sampling}_{kind}1_r{r}", "problem": problem,
        "sampling": sampling, "kind": kind, "number": 1, "members": 1, "layers": 2,
        "width": 50,
    }  # fmt: skip
    facts = {"true_value": value, "optimum": 0.0, "distance": 2 * value, "rmse": 0.01}
    return make_line(
        label="ours", experiment="quality", subject=subject, facts=facts, seed=r
    )


def everything(make_line, make_plan):
    """A record that fills every item, with one failed run and one unknown gap."""
    stages = {"lp_bounds": 1.25, "branch_and_cut": 2.0, "phase_one": 1.5,
              "phase_two": 0.75, "bounds": 0.5}  # fmt: skip
    details = {
        "phase_two_nodes": 3, "phase_one_gap": 0.5, "phase_two_start_gap": 0.25,
        "big_m_reversions": 1, "phase_two_mean_depth": 2.0, "root_bound": 4.0,
        "root_bound_after_cuts": 3.0, "milp_neurons": 5, "inequalities": 2,
    }  # fmt: skip
    lines = []
    for problem in ("peaks", "beale", "wine"):
        for i, label in enumerate(("B&C", "E-NN", "ours <b>")):
            unsolved = problem == "wine" and i == 0
            lines.append(
                make_line(
                    f"{problem}_e3_L2_n20_r0", label, stages=stages, details=details,
                    seconds=7.0 + i, status="time_limit" if unsolved else "optimal",
                    gap=None if unsolved else 0.0,
                )
            )  # fmt: skip
    for experiment, labels in (
        ("bounds", ("LP", "MILP", "TBP")),
        ("inequalities", ("BigM", "BigM-VI")),
    ):
        for label in labels:
            lines.append(
                make_line(
                    "perm_e1_L2_n50_r0", label, experiment=experiment, stages=stages,
                    details=details,
                )
            )  # fmt: skip
    for sampling in ("lhs", "mvn"):
        for kind in ("ensemble", "single"):
            for r in range(3):
                lines.append(
                    quality(make_line, "beale", sampling, kind, r, value=1.0 + r)
                )
    best = [{"members": 2, "layers": 2, "width": 77, "learning_rate": 1e-3,
             "batch_size": 32, "rmse": 0.02}]  # fmt: skip
    subject = {"name": "peaks_lhs_ensemble", "problem": "peaks", "sampling": "lhs",
               "kind": "ensemble"}  # fmt: skip
    lines.append(
        make_line(label="search", experiment="selection", subject=subject,
                  facts={"best": best, "draws": 5})
    )  # fmt: skip
    failed = make_line("spring_e3_L2_n20_r0", "B&C") | {
        "outcome": "failed", "error": "SolverError: <gave up>", "result": None,
    }  # fmt: skip
    lines.append(failed)
    items = {
        "compare": ["table1", "figure3", "figure4", "table2", "table3", "table5",
                    "table6", "table7"],
        "bounds": ["table4"], "inequalities": ["table8"],
        "quality": ["figure1", "figure2"], "selection": ["table9"],
    }  # fmt: skip
    kinds = {"quality": "quality", "selection": "selection"}
    experiments = [
        {"name": name, "kind": kinds.get(name, "solve"), "items": chosen, "note": "",
         "methods": {"B&C": "BranchAndCut()"}, "limits_text": "3,600 s", "threads": 1,
         "seeds": [0]}
        for name, chosen in items.items()
    ]  # fmt: skip
    return [make_plan(lines, experiments), *lines]


class Reader(HTMLParser):
    """Collects ids, links and what the page would load."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loads, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if "id" in known:
            self.ids.append(known["id"])
        if tag == "a":
            self.links.append(known["href"])
        if tag in ("img", "script", "link", "iframe", "source", "object", "embed"):
            self.loads.append(tag)
        self.loads += [v for k, v in attributes if k == "src"]


@pytest.fixture(scope="module")
def report(make_line, make_plan):
    return make_report(select(everything(make_line, make_plan)))


def test_every_item_of_the_paper_is_on_the_page(report):
    reader = Reader()
    reader.feed(report.page)
    assert set(ORDER) <= set(reader.ids)
    sections = re.findall(r'<section id="(\w+)"', report.page)
    assert [name for name in sections if name in ORDER] == list(ORDER)


def test_the_page_loads_nothing(report):
    reader = Reader()
    reader.feed(report.page)
    assert reader.loads == []
    assert "@import" not in report.page and "url(h" not in report.page
    for link in reader.links:
        assert link.startswith(("#", "data:")), link


def test_ids_are_unique_and_links_lead_somewhere(report):
    reader = Reader()
    reader.feed(report.page)
    assert len(reader.ids) == len(set(reader.ids))
    inside = {link[1:] for link in reader.links if link.startswith("#")}
    assert inside <= set(reader.ids)


def test_what_labels_and_errors_hold_is_escaped(report):
    assert "ours <b>" not in report.page
    assert "ours &lt;b&gt;" in report.page
    assert "SolverError: &lt;gave up&gt;" in report.page


def test_protocol_versions_machine_and_dates_are_told(report):
    for text in ("BranchAndCut()", "3,600 s", "numpy", "cores", "2024-05-01"):
        assert text in report.page


def test_a_failed_run_is_told_and_is_in_no_table(report):
    assert "1 run failed and is in no table" in report.page
    assert "spring" not in " ".join(table.to_csv() for table in report.tables)


def test_a_number_of_the_record_reaches_the_page_and_the_files(
    make_line, make_plan, tmp_path
):
    lines = everything(make_line, make_plan)
    lines[1]["result"]["seconds"]["total"] = 1234.0  # peaks, B&C
    report = make_report(select(lines))
    page = report.write(tmp_path)
    assert page.name == PAGE
    assert ">1234<" in page.read_text(encoding="utf-8")
    assert "1234.0" in (tmp_path / "report" / "table1.csv").read_text()
    assert "1234" in (tmp_path / "report" / "table1.md").read_text(encoding="utf-8")
    assert "1234" in (tmp_path / "report" / "table1.tex").read_text(encoding="utf-8")


def test_every_cell_of_every_table_is_on_the_page(report):
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", report.page)
    total = sum(len(t.rows) * len(t.columns) for t in report.tables)
    assert len(cells) == total
    assert len(report.tables) == 10 and len(report.figures) == 4


def test_by_nodes_the_page_does_not_change_with_the_clock(make_line, make_plan):
    calm, slow = everything(make_line, make_plan), everything(make_line, make_plan)
    for line in slow:
        line["finished"] = "2031-01-01T00:00:00+00:00"
        line["date"] = "2031-01-01T00:00:00+00:00"
        if line["line"] == "run":
            line["seconds"] *= 3
            line["memory"] *= 2
            line["host"] = "elsewhere"
            if line["result"]:
                taken = line["result"]["seconds"]
                line["result"]["seconds"] = {k: 3 * v for k, v in taken.items()}
    pages = [make_report(select(x), "nodes").page for x in (calm, slow)]
    assert pages[0] == pages[1]
    runs = [select(x).of("compare") for x in (calm, slow)]
    assert compute("table1", runs[0]) != compute("table1", runs[1])


def test_failed_runs_are_told_under_every_item_of_their_experiment(report):
    notes = {item.name: item.notes for item in (*report.tables, *report.figures)}
    told = "Runs that failed and are in no number: B&C 1."
    assert {name for name, under in notes.items() if told in under} == {
        "table1", "table2", "table3", "table5", "table6", "table7", "figure3",
        "figure4",
    }  # fmt: skip


def test_every_machine_that_did_runs_is_named(make_line, make_plan):
    lines = everything(make_line, make_plan)
    assert "<dt>cores</dt><dd>2</dd>" in make_report(select(lines)).page
    small, large = ({"processor": "P", "cores": n, "memory": "8 GiB"} for n in (2, 64))
    for number, line in enumerate(lines[1:]):
        line["machine"] = small if number else large
    page = make_report(select(lines)).page
    assert "<dd>P, 64 cores, 8 GiB (runs: 1)</dd>" in page
    assert page.index("P, 2 cores") < page.index("P, 64 cores")


def test_a_line_made_for_a_lost_worker_has_no_machine(make_line, make_plan):
    lines = everything(make_line, make_plan)
    lines[-1] |= {"host": None, "memory": None}
    assert "<dt>computers</dt><dd>1</dd>" in make_report(select(lines)).page


def test_an_unfinished_study_says_so(make_line, make_plan):
    lines = everything(make_line, make_plan)
    page = make_report(select([lines[0], *lines[1:4]])).page
    assert "have not ended yet" in page
    assert "No run of the experiment quality has ended yet" in page


def test_a_study_without_results_still_has_a_page(make_line, make_plan):
    assert "0 of" in make_report(select(everything(make_line, make_plan)[:1])).page


# Figures.


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_well_formed_and_the_same_every_time(name, make_line, make_plan):
    results = select(everything(make_line, make_plan))
    runs = results.of("quality" if name in ("figure1", "figure2") else "compare")
    one, two = FIGURES[name](runs, "seconds"), FIGURES[name](runs, "seconds")
    assert one == two
    assert ElementTree.fromstring(one.svg).tag.endswith("svg")
    assert one.png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", one.png[16:24])
    assert width > 600 and height > 300


def test_boxes_hold_the_replicas_with_their_interval(make_line):
    runs = [quality(make_line, r=r, value=v) for r, v in enumerate((1.0, 2.0, 6.0))] + [
        quality(make_line, "peaks", value=4.0)
    ]
    found = boxes(runs, "true_value")
    assert list(found) == ["beale", "peaks"]
    (box,) = found["beale"]
    assert box.values == (1.0, 2.0, 6.0)
    assert box.interval.mean == 3.0
    assert 1.0 <= box.interval.low < 3.0 < box.interval.high <= 6.0
    assert box.shape == (1, 2, 50)
    (single,) = found["peaks"]
    assert single.interval == (4.0, 4.0, 4.0)


def test_a_model_without_a_finite_number_is_in_no_box(make_line):
    runs = [quality(make_line, r=r, value=1.0 + r) for r in range(3)]
    runs.append(quality(make_line, "peaks"))
    runs[0]["facts"] |= {"true_value": None, "rmse": None}
    runs[3]["facts"] |= {"true_value": None, "rmse": None}
    found = boxes(runs, "true_value")
    assert list(found) == ["beale"]
    assert found["beale"][0].values == (2.0, 3.0)
    figure = figure1(runs)
    assert "2 models have no finite number" in figure.notes[-1]
    for run in runs:
        run["facts"]["rmse"] = None
    assert figure1(runs).svg


def test_figures_take_their_own_sampling_only(make_line):
    runs = [quality(make_line, sampling="mvn")]
    assert "0 models" in figure1(runs).notes[1]


def test_models_that_were_not_optimized_to_proof_are_counted(make_line):
    runs = [quality(make_line, r=r) for r in range(2)]
    runs[1]["result"] |= {"status": "time_limit", "gap": 0.2}
    assert "1 optimized with proof, 1 stopped at the limit" in figure1(runs).notes[1]


def test_cards_and_protocol_tell_our_limit_and_our_counts(report):
    assert "2<small> of 3 solved within 3,600 s</small>" in report.page
    assert "paper: 56 of 144 solved in 3,600 s each" in report.page
    assert "<dt>runs</dt><dd>10 on 4 instances (paper: 144)</dd>" in report.page
    assert "<dd>12 on 12 models (paper: 1,280)</dd>" in report.page


def test_deviations_follow_from_the_methods(make_line, make_plan):
    lines = everything(make_line, make_plan)
    assert deviations(select(lines)) == (
        paper.STARTS_FROM_LPS, paper.CUTS_AT_ROOT, paper.PRESOLVE_ON, paper.GAPS_ASSUMED
    )  # fmt: skip
    methods = {"a": "RootBound(tree_seconds=30.0)", "b": "BranchAndCut(presolve=False)"}
    lines[0]["experiments"][1]["methods"] = methods
    found = deviations(select(lines))
    assert paper.CUTS_IN_TREE in found and paper.PRESOLVE_ON not in found


def test_what_each_run_of_the_algorithm_did_is_on_the_page(make_line, make_plan):
    lines = everything(make_line, make_plan)
    (line,) = (
        x for x in lines[1:]
        if (x["subject"]["problem"], x["label"]) == ("beale", "E-NN")
    )  # fmt: skip
    line["result"]["details"] |= {
        "surveyed_nodes": 871, "milps": 93, "phase_one_inequalities": 17,
    }  # fmt: skip
    line["result"]["seconds"] |= {"survey": 2.5, "milp_bounds": 6.5, "subgradient": 0.5}
    report = make_report(select(lines))
    (table,) = (t for t in report.tables if t.name == "enn_by_run")
    (row,) = (row for row in table.rows if row[0] == "beale")
    told = dict(zip(((c.group, c.name) for c in table.columns), row, strict=True))
    assert told["Bounds", "Points"] == 871 and told["Bounds", "MILPs"] == 93
    assert told["Seconds", "Survey"] == 2.5 and told["Seconds", "MILPs"] == 6.5
    assert told["Phases", "Ineq."] == 17 and told["Seconds", "Steps"] == 0.5
    assert told["Seconds", "Phase 1"] == 1.5 and told["Phases", "Gap 2"] == 0.25
    assert '<section id="enn_by_run">' in report.page


def test_curves_and_points_survive_methods_that_solve_nothing(make_line):
    runs = [
        make_line(f"peaks_e3_L2_n20_r{r}", label, status="time_limit", gap=None)
        for r in range(2)
        for label in ("B&C", "E-NN")
    ]
    assert figure3(runs).svg
    assert "4 runs ended without a value or a bound" in figure4(runs).notes[1]


# In a real browser.


def browse(page, *options):
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu",
        "--disable-dev-shm-usage",
        "--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=4000",
        f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120
    ).stdout


PROBE = """<!doctype html><body style="margin:0"><script>
const sizes = WIDTHS, found = {};
for (const width of sizes) {
  const frame = document.createElement("iframe");
  frame.src = "report.html"; frame.width = width; frame.height = 800;
  frame.onload = () => setTimeout(() => {  // an animation needs its first frame
    const page = frame.contentDocument, root = page.documentElement;
    const small = [...page.querySelectorAll("td, p, li, dd")].filter(
      e => parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) < 12).length;
    const view = root.clientWidth, shown = e => e.getBoundingClientRect().width > 0;
    const drawings = [...page.querySelectorAll(".drawing svg")].filter(shown);
    const scrolls = e => e && e.scrollWidth > e.clientWidth;
    const frames = [...page.querySelectorAll(".scroll")];
    found[width] = {
      outside: [...page.querySelectorAll("body *")].filter(
        e => shown(e) && e.getBoundingClientRect().right > view + 1
             && !scrolls(e.closest(".scroll")) && !e.closest("svg")).length,
      links: page.querySelectorAll("nav a").length,
      scrolled: frames.filter(scrolls).length,
      bare: frames.filter(e => scrolls(e)
        && (e.offsetHeight - e.clientHeight < 8
            || frame.contentWindow.getComputedStyle(
                 e.parentElement, "::after").opacity < 0.9)).length,
      cut: drawings.filter(e => e.getBoundingClientRect().right > view).length,
      shape: Math.min(...drawings.map(
        e => e.getBoundingClientRect().width / e.getBoundingClientRect().height)),
      overflow: root.scrollWidth - root.clientWidth, small,
      sections: page.querySelectorAll("section").length,
      drawings: drawings.filter(e => e.getBoundingClientRect().height > 100).length,
      scale: Math.min(...drawings.map(
        e => e.getBoundingClientRect().width / e.viewBox.baseVal.width)),
      rows: page.querySelectorAll("tbody tr").length,
      loaded: frame.contentWindow.performance.getEntriesByType("resource").length,
    };
    document.title = JSON.stringify(found);
  }, 500);
  document.body.append(frame);
}
</script></body>"""


@needs_browser
def test_a_browser_shows_the_page_from_a_phone_to_a_wide_screen(report, tmp_path):
    report.write(tmp_path)
    probe = tmp_path / "probe.html"
    widths = [360, 390, 768, 1280]
    probe.write_text(PROBE.replace("WIDTHS", json.dumps(widths)))
    title = re.search(r"<title>(.*?)</title>", browse(probe, "--dump-dom"))
    found = json.loads(title[1])
    assert set(found) == {str(width) for width in widths}
    rows = sum(len(table.rows) for table in report.tables)
    for width, seen in found.items():
        assert seen["overflow"] == 0, f"the page is wider than {width} pixels"
        assert seen["small"] == 0
        assert seen["sections"] == report.page.count("<section")
        assert seen["drawings"] == 4
        smallest = SMALLEST_TALL if int(width) < 1000 else 6.5
        assert smallest * seen["scale"] >= 10, "letters of a drawing, in pixels"
        assert seen["outside"] == 0, f"something lies outside {width} pixels"
        assert seen["cut"] == 0
        assert seen["bare"] == 0, "a table that scrolls without a visible edge"
        assert seen["links"] == report.page.split("</nav>")[0].count('<a href="#')
        assert (seen["shape"] < 1) == (int(width) < 1000), "stacked on a phone"
        assert seen["rows"] == rows
        assert seen["loaded"] == 0
    assert found["390"]["scrolled"] > 0  # else the edges were not tested


@needs_browser
def test_a_browser_draws_the_page(report, tmp_path):
    page = report.write(tmp_path)
    picture = tmp_path / "page.png"
    browse(page, "--window-size=1280,2000", f"--screenshot={picture}")
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert (width, height) == (1280, 2000)
    assert picture.stat().st_size > 50_000  # not a blank page
