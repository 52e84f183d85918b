"""The record survives whatever ends its writer."""

import json

import pytest

from ennopt.study.record import FILE, Journal, parse, read_results, select

PLAN = {"line": "plan", "runs": ["a", "b", "c"]}


def run(key, outcome="done", **more):
    return {"line": "run", "key": key, "outcome": outcome} | more


def filled(directory, *lines):
    with Journal(directory) as journal:
        for line in lines:
            journal.append(line)
    return directory / FILE


def test_lines_come_back_as_they_were_written(tmp_path):
    lines = [PLAN, run("a", text="äöü\n\u2028", number=0.1 + 0.2, pair=(1, 2))]
    with Journal(tmp_path) as journal:
        for line in lines:
            journal.append(line)
        written = journal.lines
    content = (tmp_path / FILE).read_bytes()
    assert parse(content) == (written, len(content))
    assert written == [PLAN, lines[1] | {"pair": [1, 2]}]


def test_a_record_cut_at_any_byte_keeps_every_whole_line_and_can_go_on(tmp_path):
    lines = [PLAN, run("a"), run("b", text="ö")]
    content = filled(tmp_path / "whole", *lines).read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content) + 1):
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / FILE).write_bytes(content[:size])
        whole = sum(end <= size for end in ends)
        with Journal(directory) as journal:
            assert journal.lines == lines[:whole]
            for line in lines[whole:]:
                journal.append(line)
        assert (directory / FILE).read_bytes() == content


def test_a_last_line_of_zeros_is_cut_off(tmp_path):
    # What a file system may leave after a power failure.
    file = filled(tmp_path, PLAN, run("a"))
    with file.open("ab") as stream:
        stream.write(b"\0" * 20 + b"\n")
    with Journal(tmp_path) as journal:
        assert len(journal.lines) == 2
    assert b"\0" not in file.read_bytes()


def test_a_damaged_line_in_the_middle_is_told_with_its_number(tmp_path):
    file = filled(tmp_path, PLAN, run("a"), run("b"))
    file.write_bytes(file.read_bytes().replace(b'"key":"a"', b'"key":"a', 1))
    with pytest.raises(ValueError, match="at line 2"):
        read_results(tmp_path)


def test_a_reader_passes_over_a_torn_line_and_leaves_it(tmp_path):
    file = filled(tmp_path, PLAN, run("a"))
    with file.open("ab") as stream:
        stream.write(b'{"line":"run","key":"b"')
    before = file.read_bytes()
    assert [line["key"] for line in read_results(tmp_path).done] == ["a"]
    assert file.read_bytes() == before


def test_a_record_has_one_writer(tmp_path):
    with Journal(tmp_path), pytest.raises(ValueError, match="only writer"):
        Journal(tmp_path)
    Journal(tmp_path).close()


def test_numbers_that_json_lacks_are_refused_before_they_are_written(tmp_path):
    with Journal(tmp_path) as journal:
        with pytest.raises(ValueError, match="JSON"):
            journal.append(run("a", value=float("inf")))
        journal.append(run("b"))
    lines = (tmp_path / FILE).read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["b"]


def test_the_last_attempt_and_the_last_plan_count():
    results = select([
        PLAN, run("a", "failed"), run("old"), run("c"),
        {"line": "plan", "runs": ["c", "a"]}, run("a"),
    ])  # fmt: skip
    assert [line["key"] for line in results.runs] == ["c", "a"]
    assert not results.failed
    assert results.others == 1


def test_runs_come_in_the_order_of_the_plan_whatever_ended_first():
    one = select([PLAN, run("c"), run("a"), run("b")])
    two = select([PLAN, run("a"), run("b"), run("c")])
    assert one == two


def test_a_record_without_plan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Expected a plan"):
        select([run("a")])
    with pytest.raises(ValueError, match=f"Expected {FILE}"):
        read_results(tmp_path)
