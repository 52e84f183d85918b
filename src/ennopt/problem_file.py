"""A whole decision as one file: ``ennopt solve problem.toml``.

::

    sense = "min"
    objective = "cost"
    limits = ["worst(strength) >= 50", "slump <= 18", "std(strength) <= 4"]
    data = "mixes.csv"
    trust = "near"
    constraints = ["cement + slag <= 500"]
    integers = ["age"]

    [models]
    strength = "strength.npz"
    slump = {file = "slump.onnx", risk = "cvar:0.4"}

    [expressions]
    cost = {cement = 0.11, slag = 0.06}    # or a text: "0.11*cement + 0.06*slag"

    [bounds]
    cement = [100, 500]
    age = 28

    [run]
    time_limit = 60

Paths are relative to the file and stay in its folder, or in one that the user names. A
key that is not known is refused. Texts are read by our own parser, never evaluated.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ennopt.api import repeat_proof
from ennopt.domain.files import read_toml, stated_in
from ennopt.expressions import (
    Arithmetic,
    Condition,
    Expression,
    Prediction,
    linear,
    read_condition,
    read_expression,
)
from ennopt.expressions.joined import shared_names
from ennopt.network import shown
from ennopt.problem import Sense
from ennopt.question import OneWords, Question, Words
from ennopt.result import Result
from ennopt.several.alternatives import (
    COUNT,
    DISTANCE,
    Alternatives,
    find_alternatives,
)
from ennopt.several.front import POINTS, Front, find_front, paired
from ennopt.several.sensitivity import Sensitivity, leave_members_out

if TYPE_CHECKING:
    from ennopt.certificate.checker import Checked, Verdict

STATED = ("bounds", "constraints", "integers", "categories", "trust")
"""What a file of bounds may say, too."""

KEYS = (
    "sense", "objective", "limits", "models", "expressions", "data", "target", "fixed",
    "values", "start", "run", "pareto", "alternatives", *STATED,
)  # fmt: skip
MODEL_KEYS = ("file", "output", "risk")
RUN_KEYS = (
    "method", "backend", "time_limit", "node_limit", "memory_limit", "gap", "threads",
    "seed", "threshold",
)  # fmt: skip
PARETO_KEYS = ("objectives", "senses", "points")
ALTERNATIVES_KEYS = ("count", "distance")


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What a problem file states. `read_problem` makes one.

    Parameters
    ----------
    goal, sense
        What is optimized.
    domain
        Bounds by name, or the path of a file of bounds.
    said
        Keywords of `ennopt.maximize` about the inputs and the limits.
    run
        Those about the run.
    predictions
        By name.
    expressions
        Named sums.
    fronts, answers
        What the file says about `pareto` and `alternatives`.
    path
        The file.
    """

    goal: Arithmetic
    sense: Sense
    domain: Any
    said: Mapping[str, Any]
    run: Mapping[str, Any]
    predictions: Mapping[str, Prediction]
    expressions: Mapping[str, Expression]
    fronts: Mapping[str, Any]
    answers: Mapping[str, Any]
    path: Path

    def question(
        self,
        words: Mapping[str, Any],
        goals: Sequence[tuple[Any, Sense]] = (),
        *,
        single: bool = False,
    ) -> Question:
        """What the file asks, or about other goals; `words` go before the file's."""
        goals = goals or [(self.goal, self.sense)]
        run = {k: at for k, at in self.run.items() if single or k != "threshold"}
        said = {**self.said, **run, **words}
        return Question.of(goals, self.domain, said, "solve", single=single)

    def solve(self, **words: Unpack[OneWords]) -> Result:
        """Find the best input; keywords take the place of what the file says."""
        question = self.question(words, single=True)
        return question.posed().solve(question.running)

    def pareto(
        self,
        objectives: Sequence[str] | None = None,
        *,
        senses: Sequence[Sense] | None = None,
        points: int | None = None,
        **words: Unpack[Words],
    ) -> Front:
        """The front of two objectives, given as texts; by default those of the file."""
        goals, names = self.goals(objectives, senses)
        points = points or self.fronts.get("points", POINTS)
        return find_front(self.question(words, goals), points, names)

    def goals(
        self, objectives: Sequence[str] | None, senses: Sequence[Sense] | None
    ) -> tuple[list[tuple[Arithmetic, Sense]], list[str]]:
        """Two objectives with their senses, and what they are called."""
        objectives = objectives or self.fronts.get("objectives", ())
        if len(objectives) != 2:
            raise ValueError(
                f"Expected two objectives, got {len(objectives)}. For one, run ennopt "
                "solve. For two, add a table [pareto] "
                f'with objectives = ["...", "..."] to {self.path.name}.'
            )
        senses = senses or self.fronts.get("senses", ("max", "max"))
        with _at("objectives of pareto", self.path):
            found = [self.expression(text) for text in objectives]
        return paired(found, senses), list(objectives)

    def alternatives(
        self,
        *,
        count: int | None = None,
        distance: float | Mapping[str, float] | None = None,
        **words: Unpack[Words],
    ) -> Alternatives:
        """The best answers that differ; by default as the file says."""
        return find_alternatives(
            self.question(words), count or self.answers.get("count", COUNT),
            distance or self.answers.get("distance", DISTANCE),
        )  # fmt: skip

    def sensitivity(self, **words: Unpack[Words]) -> Sensitivity:
        """The decision without each member of its ensembles."""
        return leave_members_out(self.question(words))

    def verify(
        self,
        certificate: str | Path,
        *,
        executor: Executor | None = None,
        workers: int = 1,
        progress: Callable[[Checked], Any] | None = None,
        most_pieces: float | None = None,
    ) -> Verdict:
        """Repeat the proof of a certificate, which must be about this very decision.

        Keywords and errors are those of `ennopt.verify`.
        """
        posed = self.question({}).posed()
        named = [(model.name, model.ensemble) for model in posed.models]
        return repeat_proof(
            certificate, named, posed.problem, executor=executor, workers=workers,
            progress=progress, most_pieces=most_pieces,
        )  # fmt: skip

    def expression(self, text: str) -> Arithmetic:
        """What a text stands for, with the names of the file."""
        known = {**self.predictions, **self.expressions}
        if text in known:
            return known[text]
        return read_expression(text, known, _inputs(self.predictions))


def read_problem(path: str | Path, *, folder: str | Path | None = None) -> Decision:
    """Read a problem file.

    Parameters
    ----------
    path
        A TOML file; the head of this module shows one.
    folder
        Where files that it names may be, with all folders inside; by default the
        folder of the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ennopt import Ensemble, Network, read_problem
    >>> with tempfile.TemporaryDirectory() as home:
    ...     net = Ensemble([Network([[[2.0]]], [[1.0]])], input_names=["dose"])
    ...     net.save(pathlib.Path(home, "yield.npz"))
    ...     file = pathlib.Path(home, "problem.toml")
    ...     _ = file.write_text(
    ...         'objective = "3*yield - dose"\\n'
    ...         'models.yield = "yield.npz"\\n'
    ...         'bounds.dose = [0, 2]'
    ...     )
    ...     read_problem(file).solve().value
    13.0
    """
    path = Path(path)
    return _Reader(path, folder).decision()


@contextmanager
def _at(key: str, path: Path) -> Iterator[None]:
    """Within it, errors tell at which key of the file they were found."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        kind = type(error) if isinstance(error, ValueError | OSError) else ValueError
        raise kind(f"{error} (At {key} in {path.name}.)") from error


def _inputs(predictions: Mapping[str, Prediction]) -> tuple[str, ...]:
    return shared_names([one.ensemble for one in predictions.values()])


class _Reader:
    """Reads one problem file."""

    def __init__(self, path: Path, folder: str | Path | None) -> None:
        self.path = path
        if path.is_dir():
            raise ValueError(f"Expected a problem file, got a folder: {path}.")
        self.table = read_toml(path, "a problem file")
        self.home = Path(folder if folder is not None else path.parent).resolve()
        self._check_keys(self.table, KEYS, "")

    def decision(self) -> Decision:
        """All of the file."""
        predictions = self._models()
        with _at("models", self.path):
            inputs = _inputs(predictions)
        sums = self._expressions(predictions, inputs)
        known = {**predictions, **sums}
        sense = self.table.get("sense", "max")
        if sense not in ("max", "min"):
            raise ValueError(
                f"Expected sense = 'max' or 'min', got {sense!r:.40} in "
                f"{self.path.name}."
            )
        domain, said = self._place()
        limits = self._limits(known, inputs)
        if limits:
            said["limits"] = limits
        return Decision(
            self._goal(known, inputs), sense, domain, said,
            self._part("run", RUN_KEYS), predictions, sums,
            self._part("pareto", PARETO_KEYS),
            self._part("alternatives", ALTERNATIVES_KEYS), self.path,
        )  # fmt: skip

    def _check_keys(
        self, table: Mapping[str, Any], known: Sequence[str], where: str
    ) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                remedy = f"Did you mean {near[0]}? " if near else ""
                raise ValueError(
                    f"Expected a key that is known, got {shown(key)}{where} in "
                    f"{self.path.name}. {remedy}The keys are {', '.join(known)}."
                )

    def _part(self, key: str, known: Sequence[str]) -> dict[str, Any]:
        """A table of the file, with keys that are known."""
        table = self.table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(
                f"Expected a table [{key}], got {table!r:.60} in {self.path.name}."
            )
        self._check_keys(table, known, f" in [{key}]")
        return dict(table)

    def _file(self, given: Any, key: str) -> Path:
        """The path of a file that the problem names, in the folder it may be in."""
        if not isinstance(given, str):
            raise ValueError(
                f"Expected the path of a file, got {given!r:.60} at {key} in "
                f"{self.path.name}."
            )
        found = (self.path.parent / given).resolve()
        if not found.is_relative_to(self.home):
            raise ValueError(
                f"Expected a file in the folder of {self.path.name}, got "
                f"{shown(given)} at {key}. Move it there, or name a folder that holds "
                "both (--folder, folder=...)."
            )
        return found

    def _models(self) -> dict[str, Prediction]:
        table = self.table.get("models", {})
        if not (isinstance(table, dict) and table):
            raise ValueError(
                f"Expected a table [models] with a model at least, got none in "
                f'{self.path.name}. Write [models] and strength = "file.npz".'
            )
        found = {}
        for name, entry in table.items():
            key = f"models.{shown(name)}"
            entry = entry if isinstance(entry, dict) else {"file": entry}
            self._check_keys(entry, MODEL_KEYS, f" in {key}")
            if "file" not in entry:
                raise ValueError(f"Expected a file at {key}, got none.")
            files = entry["file"]
            many = isinstance(files, list)
            paths = [self._file(one, key) for one in (files if many else [files])]
            with _at(key, self.path):
                found[name] = Prediction(
                    paths if many else paths[0], output=entry.get("output"),
                    risk=entry.get("risk"), name=name,
                )  # fmt: skip
        return found

    def _expressions(
        self, predictions: Mapping[str, Prediction], inputs: Sequence[str]
    ) -> dict[str, Expression]:
        """Named sums; each may use those before."""
        found: dict[str, Expression] = {}
        table = self.table.get("expressions", {})
        if not isinstance(table, dict):
            raise ValueError(
                f"Expected a table [expressions], got {table!r:.60} in "
                f"{self.path.name}."
            )
        for name, entry in table.items():
            with _at(f"expressions.{shown(name)}", self.path):
                if name in predictions or name in inputs:
                    raise ValueError(
                        f"Expected a name of its own, got that of "
                        f"{'a model' if name in predictions else 'an input'}."
                    )
                if isinstance(entry, dict):
                    found[name] = linear(entry).named(name)
                elif isinstance(entry, str):
                    known = {**predictions, **found}
                    found[name] = read_expression(entry, known, inputs).named(name)
                else:
                    raise ValueError(
                        f"Expected a text or a table of prices, got {entry!r:.60}."
                    )
        return found

    def _goal(
        self, known: Mapping[str, Arithmetic], inputs: Sequence[str]
    ) -> Arithmetic:
        text = self.table.get("objective")
        if text is None:
            if len(self.table["models"]) == 1:
                return next(iter(known.values()))
            raise ValueError(
                "Expected an objective, got none and several models in "
                f'{self.path.name}. Add objective = "...".'
            )
        with _at("objective", self.path):
            if not isinstance(text, str):
                raise ValueError(f"Expected a text, got {text!r:.60}.")
            return (
                known[text] if text in known else read_expression(text, known, inputs)
            )

    def _limits(
        self, known: Mapping[str, Arithmetic], inputs: Sequence[str]
    ) -> list[Condition]:
        given = self.table.get("limits", [])
        texts = [given] if isinstance(given, str) else given
        found: list[Condition] = []
        with _at("limits", self.path):
            if not isinstance(texts, list) or not all(type(t) is str for t in texts):
                raise ValueError(f"Expected texts in a list, got {given!r:.60}.")
            for text in texts:
                found += read_condition(text, known, inputs)
        return found

    def _place(self) -> tuple[Any, dict[str, Any]]:
        """Bounds, and keywords about the inputs."""
        table, said = self.table, dict[str, Any]()
        part = {key: table[key] for key in STATED if key in table}
        domain: Any = None
        if isinstance(part.get("bounds"), str):
            domain = self._file(part.pop("bounds"), "bounds")
        part.setdefault("bounds", {})
        if not isinstance(part["bounds"], dict):
            raise ValueError(
                f"Expected a table [bounds] or the path of a file, got "
                f"{part['bounds']!r:.60} at bounds in {self.path.name}."
            )
        stated = stated_in(part, self.path)
        if stated.bounds:
            domain = stated.bounds
        for word in ("constraints", "integers", "categories", "trust"):
            if entry := getattr(stated, word):
                said[word] = dict(entry) if word == "categories" else list(entry)
        if "data" in table:
            said["data"] = self._file(table["data"], "data")
        for word in ("target", "fixed", "values", "start"):
            if word in table:
                said[word] = table[word]
        return domain, said
