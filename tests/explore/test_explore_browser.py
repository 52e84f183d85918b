"""The page in a real browser: look, ask, watch, stop, compare, download."""

import time

import pytest
from exploring import NAMES

import ennopt
from chromium import BROWSER, needs_browser
from ennopt.result import Result

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = needs_browser

COLUMN = ".compared thead th:nth-child({})"
PATIENCE = 60_000
"""Milliseconds for what takes less than one: the machine may be busy."""


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=BROWSER, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Opens tabs; no request may leave the server of the page, no script may fail."""
    tabs = []

    def tab(service, **look):
        page = chromium.new_context(**look).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda r: requests.append(r.url))
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(service.address)
        tabs.append(page)
        addresses.append(service.address)
        return page

    requests, failures, addresses = [], [], []
    yield tab
    for page in tabs:
        page.context.close()
    assert failures == []
    assert [u for u in requests if not u.startswith((*addresses, "data:"))] == []


def until(true):
    """Wait for something that another thread does."""
    for _ in range(600):
        if true():
            return True
        time.sleep(0.1)
    return False


def solved(page, column):
    page.click("text=Find the best input")
    page.wait_for_selector(COLUMN.format(column + 1))


def test_a_constraint_is_set_solved_read_and_downloaded(opened, served, subject):
    page = opened(served)
    page.fill("#constraints", "cement + `water <b>` <= 1.5")
    page.fill("#fixed-2", "1")
    solved(page, 1)
    model, rows = subject.loaded.ensemble, subject.data
    best = ennopt.maximize(
        model, data=rows, constraints="cement + `water <b>` <= 1.5",
        fixed={"plant_A": 1.0},
    )  # fmt: skip
    told = float(page.inner_text(".compared td.big"))
    assert told == pytest.approx(best.value, rel=1e-3, abs=1e-5)
    assert "Proved optimal" in page.inner_text(".compared")
    assert "cement + `water <b>` <= 1.5" in page.inner_text(".compared")
    files = {}
    for name in ("Report", "JSON", "Python"):
        with page.expect_download() as download:
            page.click(f"a[aria-label='{name} of answer A']")
        files[name] = download.value.path().read_text(encoding="utf-8")
    answer = Result.from_json(files["JSON"])
    assert f"{answer.value:.4f}" == f"{told:.4f}" and answer.proved
    assert files["Report"].startswith("<!doctype html>")
    assert "ennopt.maximize(" in files["Report"]
    space = {}
    exec(files["Python"], space)
    assert space["answer"].value == pytest.approx(answer.value, rel=1e-3, abs=1e-5)
    page.click("text=Look here")
    first = page.locator("#at-0")
    assert until(lambda: abs(float(first.input_value()) - answer.x[0]) < 0.01)
    page.click("text=Forget")
    page.wait_for_selector("#no-answers:visible")


def test_the_prediction_follows_the_sliders(opened, served, subject):
    page = opened(served)
    slider = page.locator("#slide-0")
    slider.focus()
    page.keyboard.press("End")
    shown = page.locator("#prediction")
    x = [float(page.input_value(f"#at-{j}")) for j in range(4)]
    assert x[0] == pytest.approx(float(slider.get_attribute("max")), rel=1e-3)
    value = float(subject.loaded.ensemble([x])[0, 0])
    assert until(lambda: abs(float(shown.inner_text()) - value) < 1e-2 * abs(value))
    assert page.locator("#response svg").count() == 1 + len(NAMES)
    typed, held = {0: "0.125", 1: "1.5", 2: "0.75"}, []
    page.route("**/respond", lambda one: one.continue_() if held else held.append(one))
    for j, text in typed.items():  # faster than responses come
        page.fill(f"#at-{j}", text)
    assert until(lambda: page.wait_for_timeout(20) or held)  # lets the route be served
    held[0].continue_()
    x[:3] = map(float, typed.values())
    value = float(subject.loaded.ensemble([x])[0, 0])
    assert until(lambda: abs(float(shown.inner_text()) - value) < 1e-2 * abs(value))
    assert {j: page.input_value(f"#at-{j}") for j in typed} == typed
    page.fill("#constraints", "cement <= -0.5")
    page.press("#constraints", "Tab")
    page.wait_for_selector("text=cement <= -0.5 is missed by")


def test_a_bad_field_has_its_message_beside_it(opened, served):
    page = opened(served)
    page.fill("#low-0", "much")
    page.fill("#limits", "prediction >= strong")
    page.click("text=Find the best input")
    page.wait_for_selector("#wrong-low-0:not(:empty)")
    assert page.inner_text("#wrong-low-0") == "Expected a number, got 'much'."
    assert "strong" in page.inner_text("#wrong-limits")
    field = page.locator("#low-0")
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == "wrong-low-0"
    assert field.evaluate("e => e === document.activeElement")
    assert not served.desk.runs.live and page.locator(".compared").count() == 0
    page.fill("#low-0", "-1")
    page.fill("#limits", "")
    solved(page, 1)
    assert page.locator(".wrong:not(:empty)").count() == 0


def test_two_runs_at_once_do_not_mix_and_a_stopped_one_keeps_its_answer(opened, hard):
    one, two = opened(hard), opened(hard)
    for page, sense in ((one, "max"), (two, "min")):
        page.check(f"[value={sense}]")
        page.fill("#time_limit", "")
        page.click("text=Find the best input")
    assert until(lambda: len(hard.desk.runs.live) == 2)
    two.fill("#fixed-0", "1")
    for j in range(1, 9):
        two.fill(f"#fixed-{j}", "0")
    solved(two, 1)  # a second run of the same tab ends while the first goes on
    assert len(hard.desk.runs.live) == 2
    for page in (one, two):
        page.wait_for_selector(".run svg")
        page.click(".run .stop")
    one.wait_for_selector(COLUMN.format(2))
    two.wait_for_selector(COLUMN.format(3))
    assert until(lambda: not hard.desk.runs.live)
    words = [page.inner_text(".compared thead") for page in (one, two)]
    assert "largest" in words[0] and "smallest" not in words[0]
    assert words[1].count("smallest") == 2 and "largest" not in words[1]
    found = [
        [float(t.replace(",", "")) for t in page.locator("td.big").all_inner_texts()]
        for page in (one, two)
    ]
    assert found[0][0] > found[1][0] >= found[1][1]
    assert "Not proved optimal" in words[0] and "Proved optimal" in words[1]


def test_closing_the_tab_stops_its_run_and_no_other(opened, hard):
    one, two = opened(hard), opened(hard)
    for page in (one, two):
        page.fill("#time_limit", "")
        page.click("text=Find the best input")
        page.wait_for_selector(".run svg")
    first, second = list(hard.desk.runs.live.values())
    before = len(hard.desk.runs.answers)
    one.close()
    assert until(lambda: first.stopped)
    assert not second.stopped and list(hard.desk.runs.live.values()) == [second]
    two.close()
    assert until(lambda: second.stopped)
    assert len(hard.desk.runs.answers) == before


def test_categories_join_inputs_on_the_page(opened, served):
    page = opened(served)
    page.fill("#categories", "plant = plant_A, plant_B")
    page.press("#categories", "Tab")
    page.wait_for_selector("#level-2")
    page.select_option("#level-2", label="plant_B")
    page.wait_for_selector("#sliders select")
    solved(page, 1)
    assert "plant\tplant_B" in page.inner_text(".compared")


PROBE = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement)
    if (/auto|scroll/.test(getComputedStyle(e).overflowX)) return true; return false; };
  const every = [...document.querySelectorAll("body *")];
  const named = e => e.labels && e.labels.length || e.getAttribute("aria-label")
    || e.textContent.trim();
  return {
    overflow: document.documentElement.scrollWidth - width,
    lost: every.filter(e => { const r = e.getBoundingClientRect();
      return r.width > 0 && (r.right > width + 1 || r.left < -1) && !scrolls(e)
        && !e.closest(".skip"); }).map(e => e.tagName + "." + e.className),
    unnamed: every.filter(e => e.matches("input, select, textarea, button")
      && !named(e)).map(e => e.id),
    twice: every.map(e => e.id).filter((id, k, all) => id && all.indexOf(id) !== k),
    letters: Math.min(...[...document.querySelectorAll(".chart svg")].map(
      e => 11 * e.getBoundingClientRect().width / e.viewBox.baseVal.width)),
    colour: getComputedStyle(document.body).backgroundColor,
  };
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_all_of_the_page_is_shown_and_every_field_has_a_name(
    opened, served, theme, width
):
    page = opened(served, viewport={"width": width, "height": 900}, color_scheme=theme)
    solved(page, 1)
    seen = page.evaluate(PROBE)
    assert seen["overflow"] == 0 and seen["lost"] == []
    assert seen["unnamed"] == [] and seen["twice"] == []
    assert seen["letters"] >= 9
    light = sum(int(part) for part in seen["colour"][4:-1].split(",")[:3]) > 384
    assert light == (theme == "light")
