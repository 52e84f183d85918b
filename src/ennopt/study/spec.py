"""A study as it is written: a TOML file of experiments, and profiles that shorten it.

An experiment is a table ``[experiments.NAME]``; ``[profiles.PROFILE.NAME]`` replaces
some of its keys (tables inside are merged key by key, ``skip = true`` leaves the
experiment out). A key that is not known is an error.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, get_args

from ennopt.clock import SecondsOf
from ennopt.domain.files import read_text
from ennopt.learn.functions import FUNCTIONS
from ennopt.learn.instances import ORIENTATIONS
from ennopt.learn.sampling import PROBLEMS, SAMPLINGS
from ennopt.result import Limits
from ennopt.study.expression import read_method

PAPER = "paper"
"""The profile that changes nothing."""

BENCHMARK = ("table1", "figure3", "figure4")
ITEMS = {
    "solve": (*BENCHMARK, *(f"table{n}" for n in range(2, 9))),
    "quality": ("figure1", "figure2"),
    "selection": ("table9",),
}
"""Tables and figures that each kind of experiment can fill."""


@dataclass(frozen=True)
class Library:
    """Instances trained for the study: every combination, replica by replica.

    Parameters
    ----------
    problems
        Names of problems.
    members, layers, widths
        Shapes of the ensembles.
    replicas
        Ensembles of each shape.
    max_epochs
        Passes over the rows, at most.
    seed
        Of everything random in the training.
    orientation
        Where the best value of a minimized function lies: near ``one``, or near
        ``zero`` as in the paper.
    published
        Folder of published instances, relative to the study file: those it has are not
        trained. Empty for none.
    """

    problems: tuple[str, ...] = PROBLEMS
    members: tuple[int, ...] = (3, 5)
    layers: tuple[int, ...] = (2, 4)
    widths: tuple[int, ...] = (20, 40)
    replicas: int = 3
    max_epochs: int = 500
    seed: int = 0
    orientation: str = "one"
    published: str = ""


@dataclass(frozen=True)
class Files:
    """Instances from files of ennopt's own ``.npz`` form, each with its box.

    Parameters
    ----------
    pattern
        Of the file names, relative to the study file.
    sense
        Whether their predictions are maximized or minimized.
    """

    pattern: str
    sense: str = "max"


@dataclass(frozen=True)
class Solve:
    """Every method on every instance with every seed.

    Parameters
    ----------
    name
        Of the experiment.
    items
        Tables and figures it fills.
    instances
        Where the instances come from.
    methods
        Label and expression of each method.
    limits
        Of each run.
    seeds
        Of the methods.
    threads
        Of each run.
    seconds_of
        What seconds mean, ``wall`` or ``processor``: those of the processor hardly
        depend on what else the machine does. They take one thread and processes of
        this machine.
    note
        What a reader should know.
    """

    kind: ClassVar[str] = "solve"
    name: str
    items: tuple[str, ...]
    instances: Library | Files
    methods: tuple[tuple[str, str], ...]
    limits: Limits = field(default_factory=Limits)
    seeds: tuple[int, ...] = (0,)
    threads: int = 1
    seconds_of: SecondsOf = "wall"
    note: str = ""


@dataclass(frozen=True)
class Quality:
    """How good the optimum of a trained model is for the function behind the data.

    Parameters
    ----------
    name, items, limits, threads, note
        As in `Solve`.
    problems
        Names of functions.
    samplings
        ``lhs``, ``mvn`` or both.
    singles, ensembles
        How many of the paper's four configurations of each.
    replicas
        Trainings of each configuration.
    methods
        Label and expression of the method.
    rows
        Of the sampled table; 0 for as many as in the paper.
    max_epochs
        Passes over the rows, at most.
    width
        Most neurons in a hidden layer; 0 for as many as in the paper.
    """

    kind: ClassVar[str] = "quality"
    name: str
    items: tuple[str, ...]
    methods: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = tuple(FUNCTIONS)
    samplings: tuple[str, ...] = tuple(SAMPLINGS)
    singles: int = 4
    ensembles: int = 4
    replicas: int = 20
    limits: Limits = field(default_factory=Limits)
    threads: int = 1
    rows: int = 0
    max_epochs: int = 500
    width: int = 0
    note: str = ""


@dataclass(frozen=True)
class Tuning:
    """Which hyper-parameters a randomized search finds.

    Parameters
    ----------
    name, items, note
        As in `Solve`.
    problems, samplings
        Data sets; one search for single networks and one for ensembles on each.
    draws, folds
        Of the search.
    keep
        How many of the best configurations.
    rows
        Of the sampled table; 0 for as many as in the paper.
    max_epochs
        Passes over the rows, at most.
    widths
        Smallest and largest number of neurons in a hidden layer.
    layers
        Numbers of hidden layers to draw from.
    """

    kind: ClassVar[str] = "selection"
    name: str
    items: tuple[str, ...]
    problems: tuple[str, ...] = tuple(FUNCTIONS)
    samplings: tuple[str, ...] = tuple(SAMPLINGS)
    draws: int = 1000
    folds: int = 5
    keep: int = 4
    rows: int = 0
    max_epochs: int = 500
    widths: tuple[int, int] = (20, 250)
    layers: tuple[int, ...] = (1, 2, 3, 4)
    note: str = ""


Experiment: TypeAlias = Solve | Quality | Tuning


@dataclass(frozen=True)
class Study:
    """Experiments under one title.

    Parameters
    ----------
    title, description
        For the reader of the report.
    profile
        Which profile was chosen.
    experiments
        In the order of the file.
    folder
        Where the file is: patterns of file names start there.
    """

    title: str
    description: str
    profile: str
    experiments: tuple[Experiment, ...]
    folder: Path = Path()


def read_study(path: Path, profile: str = PAPER) -> Study:
    """The study in a TOML file, as a profile has it."""
    try:
        text = read_text(path, "a study, a .toml file")
        return study_from(tomllib.loads(text), profile, path.parent)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"Expected valid TOML, got {error} in {path.name}.") from error
    except ValueError as error:
        raise ValueError(f"{error} In {path.name}.") from error


def study_from(
    tables: Mapping[str, Any], profile: str = PAPER, folder: Path = Path()
) -> Study:
    """The study in the tables of a TOML file."""
    _known(tables, ("title", "description", "experiments", "profiles"), "the file")
    experiments = _table(tables.get("experiments", {}), "experiments")
    profiles = {PAPER: {}, **_table(tables.get("profiles", {}), "profiles")}
    if profile not in profiles:
        raise ValueError(
            f"Expected a profile among {_list(profiles)}, got {profile!r}."
        )
    for name, changes in profiles.items():
        _known(_table(changes, f"profiles.{name}"), experiments, f"profiles.{name}")
    found = []
    for name, table in experiments.items():
        merged = _merged(
            _table(table, f"experiments.{name}"), profiles[profile].get(name, {})
        )
        if not merged.pop("skip", False):
            found.append(_experiment(name, merged))
    if not found:
        raise ValueError(f"Expected at least one experiment in profile {profile}.")
    _filled_once(found)
    return Study(
        str(tables.get("title", "Study")), str(tables.get("description", "")),
        profile, tuple(found), folder,
    )  # fmt: skip


def _filled_once(experiments: Sequence[Experiment]) -> None:
    filled: dict[str, str] = {}
    for experiment in experiments:
        for item in experiment.items:
            if item in filled:
                raise ValueError(
                    f"Expected one experiment for {item}, got {filled[item]} and "
                    f"{experiment.name}. Leave the item out of one."
                )
            filled[item] = experiment.name


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`: tables key by key, everything else replaced."""
    merged = dict(base)
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(base.get(name), Mapping):
            merged[name] = _merged(base[name], value)
        else:
            merged[name] = value
    return merged


KEYS: dict[str, tuple[str, ...]] = {
    "solve": (
        "items", "instances", "methods", "limits", "seeds", "threads", "seconds_of",
        "note",
    ),
    "quality": (
        "items", "methods", "problems", "samplings", "singles", "ensembles",
        "replicas", "limits", "threads", "rows", "max_epochs", "width", "note",
    ),
    "selection": (
        "items", "problems", "samplings", "draws", "folds", "keep", "rows",
        "max_epochs", "widths", "layers", "note",
    ),
}  # fmt: skip


def _experiment(name: str, table: dict[str, Any]) -> Experiment:
    where = f"experiments.{name}"
    kind = table.pop("kind", "solve")
    if kind not in KEYS:
        raise ValueError(
            f"Expected a kind among {_list(KEYS)}, got {kind!r} at {where}."
        )
    _known(table, KEYS[kind], where)
    items = _words(table.pop("items", []), f"{where}.items")
    for item in items:
        if item not in ITEMS[kind]:
            raise ValueError(
                f"Expected items among {_list(ITEMS[kind])}, got {item!r} at {where}."
            )
    plain: dict[str, Any] = {"name": name, "items": items}
    if "methods" in table:
        plain["methods"] = _methods(table.pop("methods"), f"{where}.methods")
    elif kind != "selection":
        raise ValueError(f"Expected methods, got none at {where}.")
    if kind == "quality" and len(plain["methods"]) > 1:
        raise ValueError(
            f"Expected one method, got {len(plain['methods'])} at {where}.methods. The "
            "figures do not tell methods apart: make two studies."
        )
    if "limits" in table:
        plain["limits"] = _limits(table.pop("limits"), f"{where}.limits")
    for key, allowed in (("problems", PROBLEMS), ("samplings", tuple(SAMPLINGS))):
        if key in table and kind != "solve":
            plain[key] = _words(table.pop(key), f"{where}.{key}")
            known = tuple(FUNCTIONS) if key == "problems" else allowed
            _among(plain[key], known, f"{where}.{key}")
    if kind == "solve":
        if "instances" not in table:
            raise ValueError(f"Expected instances, got none at {where}.")
        plain["instances"] = _instances(table.pop("instances"), f"{where}.instances")
    if "seconds_of" in table:
        plain["seconds_of"] = table.pop("seconds_of")
        _among([plain["seconds_of"]], get_args(SecondsOf), f"{where}.seconds_of")
        if plain["seconds_of"] == "processor" and table.get("threads", 1) != 1:
            raise ValueError(
                f"Expected one thread where seconds_of is 'processor', got "
                f"{table['threads']!r} at {where}.threads."
            )
    for key in ("seeds", "widths", "layers"):
        if key in table:
            low = 0 if key == "seeds" else 1
            plain[key] = _numbers(table.pop(key), f"{where}.{key}", low)
    if "note" in table:
        plain["note"] = str(table.pop("note"))
    for key, value in table.items():
        low = 0 if key in ("rows", "width", "singles", "ensembles") else 1
        plain[key] = _number(value, f"{where}.{key}", low)
    if kind == "selection" and len(plain.get("widths", (0, 0))) != 2:
        raise ValueError(f"Expected widths = [smallest, largest] at {where}.")
    made: Experiment = {"solve": Solve, "quality": Quality, "selection": Tuning}[kind](
        **plain
    )
    return made


def _instances(value: Any, where: str) -> Library | Files:
    table = dict(_table(value, where))
    if "files" in table:
        _known(table, ("files", "sense"), where)
        sense = table.get("sense", "max")
        if sense not in ("max", "min"):
            raise ValueError(f"Expected sense max or min, got {sense!r} at {where}.")
        return Files(str(table["files"]), sense)
    names = (
        "problems",
        "members",
        "layers",
        "widths",
        "replicas",
        "max_epochs",
        "seed",
        "orientation",
        "published",
    )
    _known(table, names, where)
    plain: dict[str, Any] = {}
    if "orientation" in table:
        plain["orientation"] = str(table.pop("orientation"))
        _among([plain["orientation"]], ORIENTATIONS, f"{where}.orientation")
    if "published" in table:
        plain["published"] = str(table.pop("published"))
    for key, entry in table.items():
        if key == "problems":
            plain[key] = _words(entry, f"{where}.{key}")
        elif key in ("members", "layers", "widths"):
            plain[key] = _numbers(entry, f"{where}.{key}", 1)
        else:
            plain[key] = _number(entry, f"{where}.{key}", 0 if key == "seed" else 1)
    return Library(**plain)


def _methods(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    found = []
    for label, text in _table(value, where).items():
        if not isinstance(text, str):
            raise ValueError(f"Expected a method in quotes, got {text!r} at {where}.")
        read_method(text)  # a mistake is told before the first run
        found.append((label, text))
    if not found:
        raise ValueError(f"Expected at least one method, got none at {where}.")
    return tuple(found)


def _limits(value: Any, where: str) -> Limits:
    table = _table(value, where)
    _known(table, ("seconds", "nodes", "gap", "memory"), where)
    for key, entry in table.items():
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            raise ValueError(f"Expected a number, got {entry!r} at {where}.{key}.")
    return Limits(**{key: float(entry) for key, entry in table.items()})


def limits_as_text(limits: Limits) -> str:
    """The limits in words.

    Examples
    --------
    >>> limits_as_text(Limits(seconds=3600))
    '3,600 s, gap 0.01%'
    """
    words = []
    if math.isfinite(limits.seconds):
        words.append(f"{limits.seconds:,.6g} s")
    if math.isfinite(limits.nodes):
        words.append(f"{limits.nodes:,.0f} nodes")
    return ", ".join([*words, f"gap {limits.gap:.3g}" if not limits.gap else
                      f"gap {100 * limits.gap:.3g}%"])  # fmt: skip


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"Expected a table, got {value!r} at {where}.")
    return value


def _known(table: Mapping[str, Any], names: Sequence[str] | Mapping[str, Any],
           where: str) -> None:  # fmt: skip
    for name in table:
        if name not in names:
            raise ValueError(
                f"Expected keys among {_list(names)}, got {name!r} at {where}."
            )


def _among(words: Sequence[str], known: Sequence[str], where: str) -> None:
    for word in words:
        if word not in known:
            raise ValueError(f"Expected {_list(known)}, got {word!r} at {where}.")


def _words(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"Expected a list of words, got {value!r} at {where}.")
    return tuple(value)


def _numbers(value: Any, where: str, low: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"Expected a list of whole numbers, got {value!r} at {where}.")
    return tuple(_number(entry, where, low) for entry in value)


def _number(value: Any, where: str, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"Expected a whole number >= {low}, got {value!r} at {where}.")
    return value


def _list(words: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(words)
