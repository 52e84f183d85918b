"""The code in README.md and docs/ runs as printed.

Python blocks of a page share a namespace and a folder; lines that begin with
``ennopt`` are commands, whatever their block is called. A block of text right below one
of Python is what that one prints. A block that takes too long or needs a cluster stands
below ``<!-- not run: reason -->`` and is listed here.
"""

import contextlib
import importlib
import io
import re
import shlex
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import ennopt
from ennopt.cli import main
from oracles import random_ensemble

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
every_page = pytest.mark.parametrize("page", NAMES)

NOT_RUN = {
    "ennopt instances make library": "trains the 144 ensembles of the paper",
    "ennopt study run experiments/paper.toml --profile smoke": "takes a minute",
    "ennopt study run experiments/paper.toml --profile smoke --executor local:2": (
        "takes a minute"
    ),
    "ennopt study run experiments/paper.toml --profile evening --only "
    "'peaks_e3_L4_n20_r0*'": "takes minutes",
    "ennopt study run experiments/paper.toml --profile evening --executor local:2": (
        "takes hours"
    ),
    "ennopt study run experiments/paper.toml --profile evening --executor local:2 "
    "--only 'peaks_*'": "takes half an hour",
    "ennopt solve experiments/instances/peaks_e3_L4_n20_r0.npz --method enn": (
        "takes minutes"
    ),
    "ennopt explore model.npz --data rows.csv --target strength": (
        "serves until Ctrl-C"
    ),
    "ennopt study status experiments/paper.toml --profile smoke": "needs that run",
    "ennopt study report experiments/paper.toml --profile smoke": "needs that run",
}
"""Commands, and first lines of Python blocks, that no test runs as they stand. What
they are made of has tests of its own."""

FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?) -->\s*\n)?"
    r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, text, line and why it is not run."""

    language: str
    code: str
    line: int
    reason: str | None

    @property
    def end(self) -> int:
        """The line of the fence that closes it."""
        return self.line + self.code.count("\n")

    @property
    def commands(self) -> list[str]:
        """Its lines for the shell that call ennopt, without prompts and comments."""
        if self.language not in ("", "console", "sh", "bash", "shell"):
            return []
        lines = self.code.replace("\\\n", " ").splitlines()
        lines = [line.removeprefix("$ ").strip() for line in lines]
        return [
            shlex.join(shlex.split(line, comments=True))
            for line in lines
            if line.startswith("ennopt ")
        ]


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            found["language"],
            found["code"],
            text[: found.start("code")].count("\n") + 1,
            found["reason"],
        )
        for found in FENCE.finditer(text)
    ]


def read(page: str) -> list[Block]:
    return blocks_of((ROOT / page).read_text(encoding="utf-8"))


# What the pages take for granted.


def small_model():
    """A fitted ensemble of two inputs, and the data it has seen."""
    pandas = importlib.import_module("pandas")
    neural = importlib.import_module("sklearn.neural_network")
    bagging = importlib.import_module("sklearn.ensemble").BaggingRegressor
    pipeline = importlib.import_module("sklearn.pipeline")
    preprocessing = importlib.import_module("sklearn.preprocessing")
    rng = np.random.default_rng(0)
    x = pandas.DataFrame(
        {"temperature": rng.uniform(20, 80, 80), "pressure": rng.uniform(1, 5, 80)}
    )
    y = np.sin(x["temperature"] / 20) - (x["pressure"] - 3) ** 2
    member = neural.MLPRegressor(hidden_layer_sizes=(5,), solver="lbfgs")
    model = pipeline.make_pipeline(
        preprocessing.StandardScaler(), bagging(member, 2, random_state=0)
    )
    return model.fit(x, y), x


def write_onnx(path: Path, ensemble: ennopt.Ensemble) -> None:
    """One member as an ONNX file."""
    onnx = importlib.import_module("onnx")
    helper, (net, *_) = onnx.helper, ensemble.members
    nodes, arrays, last = [], [], "x"
    for k, (w, b) in enumerate(net.layers()):
        arrays += [
            onnx.numpy_helper.from_array(w.T.astype(np.float32), f"W{k}"),
            onnx.numpy_helper.from_array(b.astype(np.float32), f"b{k}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"W{k}", f"b{k}"], [f"h{k}"]))
        last = f"h{k}"
        if k < len(net.weights) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"y{k}"]))
            last = f"y{k}"
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", kind, [None, net.num_inputs])],
        [helper.make_tensor_value_info(last, kind, [None, 1])],
        arrays,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.fixture(scope="module")
def given():
    """Names that the pages use without making them."""
    model, data = small_model()
    bounds = {"temperature": (20, 80), "pressure": (1, 5)}
    return {"model": model, "X_train": data, "X": data, "bounds": bounds}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages mention."""
    rng = np.random.default_rng(1)
    for part in ("examples", "experiments"):
        shutil.copytree(ROOT / part, tmp_path / part)
    ensemble = random_ensemble(rng, 2, 2, (6,)).on_box([-1.0, -1.0], [1.0, 1.0])
    ensemble.save(tmp_path / "model.npz")
    (tmp_path / "models").mkdir()
    ensemble.save(tmp_path / "models" / "one.npz")
    write_onnx(tmp_path / "model.onnx", ensemble)
    names = ennopt.load(tmp_path / "model.onnx").input_names
    rows = "".join(f"{name},-2,2\n" for name in names)
    (tmp_path / "bounds.csv").write_text("name,lower,upper\n" + rows)
    (tmp_path / "bounds.toml").write_text(
        "".join(f'"{name}" = [-2, 2]\n' for name in names)
    )
    points = rng.uniform(-1.0, 1.0, size=(20, len(names)))
    np.savetxt(
        tmp_path / "rows.csv",
        points,
        delimiter=",",
        header=",".join(names),
        comments="",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The tests.

NUMBER = re.compile(r"-?\b\d[\d,]*(\.\d+)?(e[-+]\d+)?")
BEST = re.compile(r"(?:Maximum|Minimum)(?: of .*?:)? (-?[\d.]+)")


def shape_of(output: str) -> str:
    """Its words, without numbers, which vary with processors, and alignment."""
    return " ".join(NUMBER.sub("#", output).split())


def misprint(shown: str, output: str) -> str:
    """What is wrong with an output as a page shows it, if anything."""
    if shape_of(shown) != shape_of(output):
        return f"shows\n{shown}where the code prints\n{output}"
    told = [[float(value) for value in BEST.findall(t)] for t in (shown, output)]
    return "" if told[0] == pytest.approx(told[1], rel=0.01) else f"{told}"


def run_command(command: str, folder: Path) -> str:
    """Run a line as a shell would; what went wrong, if anything."""
    _, *words = shlex.split(command)
    out, err = io.StringIO(), io.StringIO()
    target = None
    if ">" in words:
        at = words.index(">")
        target, words = words[at + 1], words[:at]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(words)
    except SystemExit as ending:  # argparse refuses the words
        status = ending.code
    if target is not None:
        (folder / target).write_text(out.getvalue(), encoding="utf-8")
    return "" if status == 0 else f"status {status}: {err.getvalue().strip()[-300:]}"


@every_page
def test_the_code_of_a_page_runs(page, given, folder):
    namespace, failures = dict(given), []
    output, end = "", 0
    for block in read(page):
        if block.reason is not None:
            continue
        if block.language == "python":
            code = "\n" * (block.line - 1) + block.code
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                exec(compile(code, page, "exec"), namespace)
            output, end = shown.getvalue(), block.end
        right_below = block.language == "text" and block.line == end + 3
        if right_below and (words := misprint(block.code, output)):
            failures.append(f"{page}, line {block.line}: {words}")
        for command in block.commands:
            if command not in NOT_RUN and (words := run_command(command, folder)):
                failures.append(f"{page}, line {block.line}: {command}\n{words}")
    assert failures == []


@every_page
def test_what_is_not_run_is_marked_and_listed(page):
    for block in read(page):
        if block.reason is None:
            assert not [c for c in block.commands if c in NOT_RUN]
        else:
            begins = [block.code.partition("\n")[0]]
            assert set(block.commands or begins) <= set(NOT_RUN)


@every_page
def test_targets_of_make_that_a_page_names_exist(page):
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in read(page):
        for target in re.findall(r"^(?:\$ )?make ([\w-]+)", block.code, re.MULTILINE):
            assert re.search(rf"^{target}:", rules, re.MULTILINE), target


@every_page
def test_names_of_the_package_that_a_page_mentions_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in set(re.findall(r"`(ennopt(?:\.\w+)+)[`(]", text)):
        thing, parts = importlib.import_module("ennopt"), name.split(".")[1:]
        for k, part in enumerate(parts):
            if not hasattr(thing, part):
                importlib.import_module(".".join(["ennopt", *parts[: k + 1]]))
            thing = getattr(thing, part)


@pytest.mark.parametrize(
    ("page", "file"),
    [("docs/tutorial.md", "cheapest.toml"), ("docs/decisions.md", "reactor.toml")],
)
def test_a_file_that_a_page_prints_is_the_one_in_examples(page, file):
    printed = [tomllib.loads(b.code) for b in read(page) if b.language == "toml"]
    shipped = tomllib.loads((ROOT / "examples" / file).read_text(encoding="utf-8"))
    assert any(table.items() <= shipped.items() for table in printed)


def test_blocks_are_read_as_they_are_meant():
    page = """text
```python
a = 1
```
<!-- not run: needs a cluster -->
```console
$ ennopt study run file.toml \\
    --executor dask   # far away
made 3 models
```
```
ennopt methods > list.txt    # a comment
make demo
```
```toml
ennopt = 1
```
"""
    first, second, third, fourth = blocks_of(page)
    assert (first.language, first.code, first.line) == ("python", "a = 1\n", 3)
    assert first.commands == fourth.commands == []
    assert second.reason == "needs a cluster"
    assert second.commands == ["ennopt study run file.toml --executor dask"]
    assert third.commands == ["ennopt methods '>' list.txt"]
    assert third.reason is None


def test_an_output_that_is_not_printed_today_is_found_out():
    told = "Maximum 3.17, proved\n  optimal after 0.01 s and 1,204 nodes\n"
    assert misprint(told, told.replace("0.01 s and 1,204", "2 s and 7")) == ""
    assert misprint(told, told.replace("3.17", "3.171")) == ""
    assert misprint(told, told.replace("3.17", "4"))
    assert misprint(told, told + "  warning: the model extrapolates\n")


def test_a_page_that_lies_is_found_out(folder):
    assert run_command("ennopt methods > list.txt", folder) == ""
    assert "bigm" in (folder / "list.txt").read_text()
    assert run_command("ennopt solve no-such-file.npz", folder).startswith("status 2")
    assert run_command("ennopt solve model.npz --no-such-option", folder)
