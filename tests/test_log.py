"""One display of progress: live in a terminal, lines everywhere else."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest

import ennopt
from ennopt.cli import main
from ennopt.log import BAR_SECONDS, Bar, ProgressLog, sparkline
from ennopt.result import Progress, Result
from oracles import random_ensemble

MOMENTS = (
    Progress(0.1, 1.0, 9.0, 5, "search", 3, 60.0),
    Progress(0.3, 1.0, 8.9, 1005, "search", 4321, 60.0),
    Progress(0.5, 2.0, 8.0, 2005, "search", 17, 60.0),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def plain(text):
    """What is left without the sequences that move the cursor and set colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("ennopt.log.LIVE_SECONDS", 0.0)
    return Terminal()


def log_to(stream):
    log = ProgressLog("Ensemble", stream)
    for moment in MOMENTS:
        log(moment)
    log.close()
    return stream.getvalue()


def test_a_terminal_shows_value_bound_gap_rate_open_nodes_and_time_left(screen):
    text = plain(log_to(screen))
    for word in ("value", "bound", "gap", "nodes/s", "open", "time left"):
        assert word in text
    assert "4,321" in text and "5,000" in text  # 1,000 nodes in 0.2 seconds
    assert "1 min 00 s" in text or "59 s" in text
    assert "█" in text  # the sparkline


def test_files_and_pipes_get_lines_only():
    text = log_to(io.StringIO())
    assert "\r" not in text and "\x1b" not in text
    title, header, *lines = text.splitlines()
    assert title == "Ensemble" and header == ProgressLog.HEADER
    assert [line.split()[0] for line in lines] == ["0.10s", "0.50s"]
    assert lines[1].split() == [
        "0.50s", "2", "8", "300.000%", "2,005", "17", "search"
    ]  # fmt: skip


def test_the_lines_of_a_terminal_are_those_of_a_file(screen):
    kept = log_to(io.StringIO()).splitlines()
    seen = plain(log_to(screen))
    for line in kept:
        assert line.strip() in seen


def test_no_color_means_no_colour(screen, monkeypatch):
    colours = re.compile(r"\x1b\[[0-9;]*(3[0-9]|9[0-7])[0-9;]*m")
    assert colours.search(log_to(screen))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours.search(log_to(type(screen)()))


def test_what_others_print_stays_where_it_goes(screen, capsys):
    log = ProgressLog("", screen)
    log(MOMENTS[0])
    print("a line for a pipe")
    log.close()
    assert capsys.readouterr().out == "a line for a pipe\n"
    assert "pipe" not in screen.getvalue()


def test_a_dumb_terminal_gets_lines(screen, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in log_to(screen)


def test_a_sparkline_falls_with_its_numbers():
    line = sparkline([1.0, 1e-1, 1e-3, 1e-6])
    assert list(line) == sorted(line, reverse=True)
    assert line[0] == "█" and line[-1] == "▁"
    assert sparkline([0.5, 0.5]) == "▁▁"


def test_a_bar_ends_full_and_tells_the_time_left(screen, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ennopt.log.time.monotonic", lambda: now[0])
    with Bar("networks", 3, screen) as bar:
        for _ in range(30):
            now[0] += 1.0
            bar.add(0.1)
    text = plain(screen.getvalue())
    assert text.rstrip().endswith("100.0% 3/3")
    assert "50.0% 1/3  about 15 s left" in text


def test_in_a_pipe_a_bar_is_a_line_now_and_then(monkeypatch):
    now, pipe = [0.0], io.StringIO()
    monkeypatch.setattr("ennopt.log.time.monotonic", lambda: now[0])
    with Bar("draws", 100, pipe) as bar:
        for _ in range(100):
            now[0] += 0.5
            bar.add(1)
    lines = pipe.getvalue().splitlines()
    assert len(lines) == int(50 / BAR_SECONDS) - 1
    assert all("draws" in line and "\x1b" not in line for line in lines)


@pytest.fixture
def saved(rng, tmp_path):
    path = tmp_path / "m.npz"
    random_ensemble(rng).save(path)
    return path


def test_a_log_file_has_the_lines_and_the_answer(saved, tmp_path, capsys):
    log = tmp_path / "run.log"
    line = ["solve", str(saved), "--lower", "-1", "--upper", "1", "--json"]
    assert main([*line, "--log-file", str(log), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = log.read_text(encoding="utf-8")
    assert ProgressLog.HEADER in text
    assert Result.from_json(out).headline in text
    assert main([*line, "--log-file", str(tmp_path)]) == 2
    assert "--log-file" in capsys.readouterr().err


def test_a_real_terminal_is_left_as_it_was(saved):
    leader, follower = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "ennopt", "solve", str(saved), "--lower", "-2",
         "--upper", "2"],
        stdout=subprocess.DEVNULL, stderr=follower,
        env=os.environ | {"TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(leader)
    assert done.wait() == 0
    text = seen.decode()
    assert "nodes" in plain(text)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is back


def test_progress_tells_open_nodes_and_the_limit(rng):
    seen = []
    ennopt.maximize(
        random_ensemble(rng, 3, 4, (12, 12)), [(-2, 2)] * 4, callback=seen.append,
        method="box", time_limit=50, threads=1,
    )  # fmt: skip
    assert all(moment.limit == 50 for moment in seen)
    assert any(isinstance(moment.open_nodes, int) for moment in seen)
