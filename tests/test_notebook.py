"""In a notebook a run shows a live panel, and an answer shows itself."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import sys
sys.path.insert(0, TESTS)
import numpy as np, ennopt
from oracles import random_ensemble
model = random_ensemble(np.random.default_rng(1), 3, 10, (40, 40, 40))
"""
RUN = "answer = ennopt.maximize(model, (-2, 2), verbose=True, time_limit=2, gap=1e-9)"


@pytest.fixture(scope="module")
def cells():
    """The outputs of each cell of a notebook that a real kernel has run."""
    book = nbformat.v4.new_notebook()
    setup = SETUP.replace("TESTS", repr(str(Path(__file__).parent)))
    book.cells = [nbformat.v4.new_code_cell(code) for code in (setup, RUN, "answer")]
    updates = []
    client = NotebookClient(book, timeout=120, kernel_name="python3")
    process = client.process_message

    def heard(message, *more):
        updates.append(message["msg_type"])
        return process(message, *more)

    client.process_message = heard
    client.execute()
    return [cell.outputs for cell in book.cells], updates


def test_a_run_shows_one_panel_that_is_drawn_again_and_again(cells):
    (_, run, _), heard = cells
    panels = [part for part in run if part.output_type == "display_data"]
    assert len(panels) == 1
    for word in ("value", "bound", "gap", "nodes/s", "open", "time left"):
        assert word in panels[0].data["text/plain"]
    assert "text/html" in panels[0].data
    assert heard.count("update_display_data") >= 2
    lines = "".join(part.text for part in run if part.output_type == "stream")
    assert "value" in lines and "\x1b" not in lines


def test_an_answer_is_a_table(cells):
    (_, _, shown), _ = cells
    (table,) = shown
    html = table.data["text/html"]
    assert "<table>" in html and "members predict" in html
    for name in ("x0", "x9"):
        assert f"<th>{name}</th>" in html
