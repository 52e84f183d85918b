"""Where and with what a run was made: the machine, the versions, the source."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import ennopt
from ennopt.run import available_cores
from ennopt.version import VERSION

ROOMS_THAT_DO_NOT_SOLVE = ("study", "cli", "pages", "explore")
"""Their source does not change a result, so it does not change a key."""

EXCEPT = ("study/work.py",)
"""But these do."""

ALWAYS = ("api.py", "study/work.py")
"""What every run goes through, itself; most of what it imports is for other callers."""

KERNEL = "_kernel"
"""The compiled module: part of the code of whatever imports it."""

LIBRARIES = ("numpy", "highspy", "pyscipopt", "gurobipy", "scikit-learn")
"""Distributions that can change a result; those not installed are left out."""


@functools.cache
def versions(*, compiled: bool = True) -> dict[str, str]:
    """Versions of everything that can change a result.

    ``source`` is a digest of the package's own code, comments and docstrings left out:
    a method that was changed does not reuse the results of the one before, even when
    nobody raised the version.

    Parameters
    ----------
    compiled
        Whether the bytes of compiled files are part of ``source``. Two computers that
        compile the same code have other bytes.

    Examples
    --------
    >>> {"ennopt", "source", "python", "numpy"} <= set(versions())
    True
    """
    source = source_digest(Path(ennopt.__file__).parent, compiled=compiled)
    found = {"ennopt": VERSION, "source": source, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def source_digest(root: Path, *, compiled: bool = True) -> str:
    """Twelve hex digits that change when the code under `root` does something else."""
    suffixes = (".py", ".toml", ".so", ".pyd") if compiled else (".py", ".toml")
    return _digest(
        root,
        (
            path
            for path in root.rglob("*")
            if path.suffix in suffixes and _solves(path.relative_to(root))
        ),
    )


def code_digest(root: Path, modules: Iterable[str], *, compiled: bool = True) -> str:
    """Twelve hex digits that change when the code behind some modules does.

    Behind a module is what it imports, at its top or inside a function, and what that
    imports, and so on: the result of a method depends on this code and on no other.

    Parameters
    ----------
    root
        Folder of the package.
    modules
        Names such as ``ennopt.paper.two_phase``.
    compiled
        As for `versions`.
    """
    return _code_digest(root, tuple(sorted(set(modules))), compiled)


@functools.cache
def _code_digest(root: Path, modules: tuple[str, ...], compiled: bool) -> str:
    files = {root / name for name in ALWAYS if (root / name).is_file()}
    waiting = [path for name in modules for path in _files(root, name)]
    while waiting:
        path = waiting.pop()
        if path in files or not _solves(path.relative_to(root)):
            continue
        files.add(path)
        for name in _imported(path):
            if name.endswith(f".{KERNEL}"):
                files |= set(root.glob(f"{KERNEL}*.so")) if compiled else set()
                files |= set(root.glob(f"{KERNEL}*.pyd")) if compiled else set()
            waiting += _files(root, name)
    return _digest(root, files)


def _files(root: Path, name: str) -> list[Path]:
    """The files behind a dotted name: a module, or a name inside one."""
    package, *parts = name.split(".")
    if package != root.name:
        return []
    found = []
    for count in range(1, len(parts) + 1):  # a package runs before what is in it
        place = root.joinpath(*parts[:count])
        found += [place / "__init__.py", place.with_suffix(".py")]
    return [path for path in found if path.is_file()]


@functools.cache
def _imported(path: Path) -> tuple[str, ...]:
    """What a file imports, by statements and by names in ``import_module``."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found += [f"{module}.{alias.name}" for alias in names]
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                found.append(name)
    return tuple(found)


def training_digest(root: Path) -> str:
    """Twelve hex digits that change when instances would be trained in another way."""
    files = [*(root / "learn").rglob("*.py"), *(root / "learn").rglob("*.toml")]
    return _digest(root, [*files, root / "network.py"])


def _solves(path: Path) -> bool:
    return path.parts[0] not in ROOMS_THAT_DO_NOT_SOLVE or path.as_posix() in EXCEPT


def _digest(root: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        if path.suffix == ".py":
            content = _meaning(content.decode()).encode()
        name = path.relative_to(root).as_posix()
        digest.update(f"{name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def _meaning(source: str) -> str:
    """The syntax tree of `source` without its docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        node.body = [  # type: ignore[attr-defined]
            line
            for line in body
            if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        ]
    return ast.dump(tree)


def difference(expected: dict[str, str], found: dict[str, str]) -> str:
    """The first version that differs, in words; empty where none does.

    Examples
    --------
    >>> difference({"numpy": "2.1"}, {"numpy": "2.0"})
    'Expected numpy 2.1 on the worker, as in the plan, got 2.0.'
    """
    for name in sorted(expected.keys() | found.keys()):
        here, there = expected.get(name, "none"), found.get(name, "none")
        if here != there:
            return f"Expected {name} {here} on the worker, as in the plan, got {there}."
    return ""


def machine() -> dict[str, str | int]:
    """The machine in words: processor, cores, memory, system."""
    facts: dict[str, str | int] = {
        "processor": _processor(),
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        facts["memory"] = f"{size / 2**30:.0f} GiB"
    return facts


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
