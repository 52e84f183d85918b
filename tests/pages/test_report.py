"""The report of an answer tells what the run and the data say, and loads nothing."""

import copy
import io
import json
import pickle
import re
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

import ennopt
from chromium import BROWSER, needs_browser
from ennopt.cli import main
from ennopt.columns import Group, Number, Ordinal
from ennopt.pages import drawn, told
from ennopt.pages.charts import RAMP, Scale, coloured, contours, png
from ennopt.pages.coordinates import coordinates, line, plane
from ennopt.pages.repeat import repeat
from ennopt.result import Result
from oracles import random_ensemble

NAMES = ("cement", "<b>water</b>", "age & time")


def named(ensemble, names=NAMES):
    return ennopt.Ensemble(ensemble.members, ensemble.weights, input_names=names)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 3)) * [0.2, 0.2, 0.1]
    return x, x.sum(axis=1)


@pytest.fixture(scope="module")
def model():
    return named(random_ensemble(np.random.default_rng(3), 3, 3, (6,)))


@pytest.fixture(scope="module")
def answer(model, rows):
    """Far from its data, at the ends of ranges, with a constraint."""
    x, y = rows
    return ennopt.maximize(
        model,
        [(-3, 3)] * 3,
        data=x,
        target=y,
        constraints=ennopt.Rows([[1.0, 1.0, 1.0]], [-2.0], [2.0], ("sum < 4 &",)),
        threads=1,
    )


@pytest.fixture(scope="module")
def page(answer, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert answer.report(path) == path
    return path


class Reader(HTMLParser):
    """Collects ids, links, texts and what the page would load."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.text = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.ids += [known["id"]] if "id" in known else []
        if tag == "a":
            self.links.append(known["href"])
        if tag in ("script", "link", "iframe", "source", "object", "embed"):
            self.loads.append(tag)
        self.loads += [
            v for k, v in attributes
            if k in ("src", "srcset") or (k == "href" and tag != "a")
            if not v.startswith("data:image/png;base64,")
        ]  # fmt: skip

    def handle_data(self, data):
        self.text.append(data)


def text_of(page):
    return " ".join(" ".join(Reader(page).text).split())


def test_the_page_loads_nothing_and_its_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    reader = Reader(text)
    assert reader.loads == []
    assert "@import" not in text and "url(" not in text and "http" not in text
    assert len(reader.ids) == len(set(reader.ids))
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert all(link.startswith("#") for link in reader.links)


def test_names_and_texts_are_escaped(page):
    text = page.read_text(encoding="utf-8")
    assert "<b>water</b>" not in text
    assert "&lt;b&gt;water&lt;/b&gt;" in text
    assert "sum &lt; 4 &amp;" in text


def test_the_page_tells_recipe_members_warning_and_remedy(answer, page):
    text = text_of(page.read_text(encoding="utf-8"))
    assert f"{answer.value:.8g}"[:7] in text
    for name, at in answer.inputs.items():
        assert f"{name} {told.compact(at, 7)}" in text
    for at in answer.member_values:
        assert told.compact(at, 7) in text
    assert 'trust="near"' in text and "--trust near" in text
    assert answer.extrapolation.warnings
    for words in answer.extrapolation.warnings:
        assert words[1:] in text
    for row in answer.extrapolation.nearest:
        assert f"row {row}" in text


def test_shares_of_ranges_are_those_of_the_point(answer):
    lower, width = -3.0, 6.0
    for row, at in zip(told.recipe(answer), answer.x, strict=True):
        assert row["share"] == pytest.approx(100 * (at - lower) / width, abs=0.01)
        assert bool(row["place"]) == (abs(at) == 3.0)


def test_without_data_the_page_says_what_it_cannot_tell(model):
    answer = ennopt.maximize(model, [(-1, 1)] * 3)
    text = text_of(told_page(answer))
    assert "No data were given" in text and "--data FILE.csv --target NAME" in text
    assert "Do not believe" not in text


def told_page(answer):
    from ennopt.pages.render import page

    return page(answer)


def test_an_infeasible_problem_has_a_page_that_names_the_conflict(model):
    answer = ennopt.maximize(model, [(-1, 1)] * 3, constraints="cement >= 2")
    text = text_of(told_page(answer))
    assert "No input satisfies" in text
    assert "cement >= 2" in text and "contradict" in text
    assert "cement >= 2" in text_of(answer._repr_html_())


def test_an_unproved_answer_is_not_called_optimal(model):
    answer = ennopt.minimize(
        model, [(-9, 9)] * 3, node_limit=1, method="box", data=np.eye(3)
    )
    assert not answer.proved
    text = text_of(told_page(answer))
    assert "Not proved optimal" in text and "stopped at the node limit" in text
    assert "is proved. Whether" not in text
    assert f"gains at most {abs(answer.bound - answer.value):.2g}" in text


def test_a_result_read_from_json_or_another_process_still_has_a_page(answer):
    assert answer.asked is not None
    assert "asked" not in answer.to_dict()
    copied = pickle.loads(pickle.dumps(answer))
    for other in (Result.from_json(answer.to_json()), copied, copy.copy(answer)):
        assert other.asked is None
        assert np.array_equal(other.x, answer.x)
        text = text_of(told_page(other))
        assert "cement" in text and "Value and bound over time" in text
        assert "read from a file" in text
        assert "Do not believe" in text


def test_slices_are_forward_passes_and_say_what_is_allowed(answer):
    problem = answer.asked.problem
    first, second, _ = coordinates(problem)
    one = line(problem, first, answer.x)
    points = np.tile(answer.x, (len(one.at), 1))
    points[:, 0] = one.at
    assert np.array_equal(one.values, problem.values(points))
    assert np.allclose(one.members, problem.ensemble.member_values(points)[..., 0])
    assert np.array_equal(one.feasible, problem.domain.feasible(points))
    assert not one.feasible.all() and one.feasible[one.here]
    assert one.values[one.here] == pytest.approx(answer.value, rel=1e-12)
    two = plane(problem, first, second, answer.x)
    for i, j in ((0, 0), (3, 7), (-1, 20)):
        point = answer.x.copy()
        point[:2] = two.xs[j], two.ys[i]
        assert two.values[i, j] == pytest.approx(float(problem.values(point)[0]))
        assert two.feasible[i, j] == problem.domain.contains(point)


def test_with_a_hull_some_points_of_a_slice_answer_for_their_neighbours(model, rows):
    answer = ennopt.maximize(model, rows[0], trust="hull", time_limit=20)
    domain = answer.asked.problem.domain
    first, second, _ = coordinates(answer.asked.problem)
    one = line(answer.asked.problem, first, answer.x)
    points = np.tile(answer.x, (len(one.at), 1))
    points[:, 0] = one.at
    exact = domain.feasible(points)
    assert np.mean(one.feasible == exact) > 0.9 and one.feasible[one.here]
    two = plane(answer.asked.problem, first, second, answer.x)
    assert 0.0 < two.feasible.mean() < 1.0
    i, j = len(two.ys) - 1, 0
    corner = answer.x.copy()
    corner[:2] = two.xs[j], two.ys[i]
    assert two.feasible[i, j] == domain.contains(corner)


def test_equations_are_left_aside_in_slices(model):
    answer = ennopt.maximize(model, [(-1, 1)] * 3, constraints="cement == 0.5")
    assert sum(one.feasible.sum() for one in drawn.lines(answer)) > 100
    assert "equations are left aside" in text_of(told_page(answer))


def test_coordinates_tell_what_the_answer_tells(rng):
    columns = (
        Number("dose", 0, change="log"),
        Group("grade", (1, 2), ("A", "B"), base="C"),
        Ordinal("size", 3, ("small", "large")),
    )
    inner = random_ensemble(rng, 2, 4, (5,))
    model = ennopt.Ensemble(inner.members, inner.weights, columns=columns)
    answer = ennopt.maximize(model, {"dose": (1, 100)})
    found = coordinates(answer.asked.problem)
    assert [c.name for c in found] == list(answer.inputs)
    points = answer.x[None]
    assert found[0].told(points)[0] == pytest.approx(answer.inputs["dose"])
    for choice in found[1:]:
        assert choice.levels[int(choice.told(points)[0])] == answer.inputs[choice.name]
    lines = {one.coordinate.name: one for one in drawn.lines(answer)}
    assert set(lines["grade"].labels) == {"A", "B", "C"}
    best = lines["grade"].values.max()
    assert best == pytest.approx(answer.value, rel=1e-9)
    assert "grade" in text_of(told_page(answer))


REPEATED = {
    "box": {"domain": [(-1, 2), (0, 1), (3, 3)]},
    "rows": {"domain": [(-1, 1)] * 3, "constraints": ["cement + 2*cement <= 1"]},
    "numbers": {
        "domain": [(-1, 1)] * 3,
        "constraints": [
            ennopt.Rows([[1.0, -1.0, 0.5]], [-np.inf], [0.25]),
            "cement >= -0.5",
        ],
    },
    "discrete": {
        "domain": {"cement": {-1.0, 0.0, 2.0}, NAMES[1]: (-2, 3), NAMES[2]: 1},
        "integers": [NAMES[1]],
    },
    "categories": {
        "domain": [(0, 1), (0, 1), (-2, 2)],
        "categories": {"plant": {"A": NAMES[0], "B": NAMES[1], "C": None}},
    },
}


@pytest.mark.parametrize("given", REPEATED.values(), ids=REPEATED)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_the_lines_that_repeat_a_run_do(given, sense, model):
    verb = ennopt.maximize if sense == "max" else ennopt.minimize
    answer = verb(model, **given, node_limit=5000, gap=1e-5, seed=4, threads=1)
    text = repeat(answer.asked, sense)
    again = eval(text, {"ennopt": ennopt, "model": model})
    assert again.value == answer.value and again.bound == answer.bound
    for name in ("lower", "upper", "names"):
        one, two = (getattr(r.asked.problem.domain, name) for r in (answer, again))
        assert np.array_equal(one, two)
    assert again.asked.limits == answer.asked.limits and again.asked.seed == 4
    assert told.fingerprint(again.asked.problem) == told.fingerprint(
        answer.asked.problem
    )


def test_the_command_line_writes_the_page_and_how_to_repeat_it(model, tmp_path, capsys):
    model.save(tmp_path / "m.npz")
    page = tmp_path / "page.html"
    line = ["solve", str(tmp_path / "m.npz"), "--lower", "-1", "--upper", "1"]
    assert main([*line, "--report", str(page), "--quiet"]) == 0
    text = text_of(page.read_text(encoding="utf-8"))
    assert f"ennopt solve {tmp_path / 'm.npz'} --lower -1 --upper 1 --report" in text
    assert main([*line, "--report", str(tmp_path)]) == 2
    assert "--report" in capsys.readouterr().err


def test_a_notebook_shows_recipe_value_bound_members_and_warning(answer):
    html = answer._repr_html_()
    text = text_of(html)
    assert Reader(html).loads == []
    for name in NAMES:
        assert name in text
    assert told.compact(answer.bound, 8) in text
    assert "3 members predict" in text and 'trust="near"' in text


# Parts of charts.


def test_an_image_is_read_back_as_it_was_written(rng):
    image = pytest.importorskip("matplotlib.image")
    pixels = rng.integers(0, 256, size=(5, 7, 4), dtype=np.uint8)
    read = image.imread(io.BytesIO(png(pixels)))
    assert np.array_equal(np.round(read * 255).astype(np.uint8), pixels)


def test_colours_end_where_the_ramp_ends():
    found = coloured(np.array([0.0, 1.0]), np.array([True, False]))
    assert tuple(found[0, :3]) == RAMP[0][1] and tuple(found[1, :3]) == RAMP[-1][1]
    assert found[0, 3] == 255 > found[1, 3]


def test_contours_lie_on_their_level(rng):
    a, b = rng.normal(size=2)
    ys, xs = np.mgrid[0:9, 0:8]
    found = contours(a * xs + b * ys, 0.3 * (a + b))
    assert found
    for x0, y0, x1, y1 in found:
        for x, y in ((x0, y0), (x1, y1)):
            assert a * x + b * y == pytest.approx(0.3 * (a + b))


@pytest.mark.parametrize("low", [-7.3, 0.0, 1e-4, 990.0])
@pytest.mark.parametrize("length", [1e-3, 0.7, 3.0, 1200.0])
def test_ticks_are_inside_and_say_where_they_are(low, length):
    scale = Scale(low, low + length, 0.0, 100.0)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 7
    for place, text in ticks:
        number = float(text.replace(",", ""))
        assert scale(number) == pytest.approx(place, abs=0.6)


# Plots.


def test_plots_are_drawn_on_the_axes_that_are_given(answer):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(1, 3)
    assert answer.plot("slices", axes=axes) is axes
    curve = axes[0].lines[-3].get_xydata()
    first = drawn.lines(answer)[0]
    assert np.array_equal(curve[:, 0], first.at)
    seen = ~np.isnan(curve[:, 1])
    assert np.array_equal(curve[seen, 1], first.values[first.feasible])
    for what in ("members", "convergence"):
        _, one = pyplot.subplots()
        assert answer.plot(what, axes=one) is one
        assert one.lines
    assert len(answer.plot()) == 5
    with pytest.raises(ValueError, match="Expected 'slices'"):
        answer.plot("everything")
    pyplot.close("all")


# In a real browser.

PROBE = """<!doctype html><body style="margin:0"><script>
const found = {};
for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  frame.src = "report.html"; frame.width = width; frame.height = 900;
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    const view = frame.contentWindow;
    const scrolls = e => { for (; e && e !== page.body; e = e.parentElement)
      if (/auto|scroll/.test(view.getComputedStyle(e).overflowX)) return true;
      return false; };
    const every = [...page.querySelectorAll("body *")];
    found[width] = {
      overflow: root.scrollWidth - root.clientWidth,
      lost: every.filter(e => { const r = e.getBoundingClientRect();
        return r.width > 0 && (r.right > width + 1 || r.left < -1) && !scrolls(e);
      }).map(e => e.tagName + "." + (e.getAttribute("class") || "")).slice(0, 5),
      small: every.filter(e => e.childElementCount === 0 && e.textContent.trim()
        && !e.closest("svg, style, title")
        && parseFloat(view.getComputedStyle(e).fontSize) < 12).length,
      letters: Math.min(...[...page.querySelectorAll(".chart svg")].map(e =>
        11 * e.getBoundingClientRect().width / e.viewBox.baseVal.width)),
      charts: page.querySelectorAll(".chart svg").length,
      empty: [...page.querySelectorAll(".chart svg")].filter(e =>
        e.getBoundingClientRect().height < 60).length,
      colour: view.getComputedStyle(page.body).backgroundColor,
      loaded: view.performance.getEntriesByType("resource")
        .filter(e => !e.name.startsWith("data:")).length,
    };
    document.title = JSON.stringify(found);
  };
  document.body.append(frame);
}
</script></body>"""


def browse(page, *options):
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu",
        "--disable-dev-shm-usage", "--hide-scrollbars",
        "--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=4000",
        f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120
    ).stdout


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_shows_all_of_the_page_at_every_width(page, theme):
    widths = [360, 390, 768, 1280]
    probe = page.parent / f"probe-{theme}.html"
    probe.write_text(PROBE.replace("WIDTHS", json.dumps(widths)))
    dark = ["--blink-settings=preferredColorScheme=0"] if theme == "dark" else []
    title = re.search(r"<title>(.*?)</title>", browse(probe, "--dump-dom", *dark))
    found = json.loads(title[1])
    charts = page.read_text(encoding="utf-8").count('<figure class="chart"')
    assert charts >= 12
    for width in widths:
        seen = found[str(width)]
        assert seen["overflow"] == 0, f"the page is wider than {width} pixels"
        assert seen["lost"] == []
        assert seen["small"] == 0
        assert seen["letters"] >= 9.5, "the letters of a chart, in pixels"
        assert (seen["charts"], seen["empty"]) == (charts, 0)
        assert seen["loaded"] == 0
        light = sum(map(int, re.findall(r"\d+", seen["colour"])[:3])) > 384
        assert light == (theme == "light")
