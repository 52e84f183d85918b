"""The commands ``ennopt train`` and ``ennopt instances``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ennopt.learn.datasets import DATASETS, Table, read_csv
from ennopt.learn.functions import function_named
from ennopt.learn.hyperparameters import paper_configurations
from ennopt.learn.instances import (
    PROFILES,
    find,
    make,
    publish,
    read_manifest,
    restrict,
)
from ennopt.learn.sampling import PROBLEMS, SAMPLINGS, problem_table, sample
from ennopt.learn.selection import Space, search
from ennopt.learn.training import TOOLKITS, Configuration, train
from ennopt.log import Bar
from ennopt.network import read_npz
from ennopt.options import check_place, positive_number, whole_number


@contextmanager
def worker_processes(jobs: int) -> Iterator[Executor | None]:
    """`jobs` worker processes, one thread each; ``None`` for a single job."""
    if jobs == 1:
        yield None
        return
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))  # inherited by the workers
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield pool
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def add_train_parser(commands: Any) -> None:
    """Declare ``ennopt train``."""
    parser = commands.add_parser(
        "train",
        help="train an ensemble on a table or a test problem",
        description="Train an ensemble of ReLU networks. The file written takes "
        "inputs and predicts the target in original units.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--problem",
        metavar="NAME",
        help=f"{', '.join(PROBLEMS)}, styblinski<inputs> or rosenbrock<inputs>",
    )
    source.add_argument("--data", type=Path, metavar="FILE", help="a CSV file")
    parser.add_argument("--target", metavar="COL", help="column to predict")
    parser.add_argument(
        "--drop", action="append", default=[], metavar="COL", help="column to leave out"
    )
    parser.add_argument(
        "--sampling", choices=SAMPLINGS, help="of a function (default: lhs)"
    )
    parser.add_argument(
        "--points", type=whole_number(1), metavar="N", help="rows of a function"
    )
    shape = parser.add_argument_group("what is trained")
    default = Configuration()
    for name, kind in (
        ("members", whole_number(1)),
        ("layers", whole_number(1)),
        ("width", whole_number(1)),
        ("learning-rate", positive_number),
        ("batch-size", whole_number(1)),
        ("max-epochs", whole_number(1)),
        ("patience", whole_number(1)),
    ):
        value = getattr(default, name.replace("-", "_"))
        shape.add_argument(
            f"--{name}", type=kind, metavar="N", help=f"default: {value:g}"
        )
    shape.add_argument(
        "--bagging",
        action=argparse.BooleanOptionalAction,
        help="bootstrap samples for the members (default: yes)",
    )
    shape.add_argument(
        "--paper",
        type=int,
        metavar="K",
        help="configuration K (1 to 8) that the paper selected for this function",
    )
    parser.add_argument("--toolkit", choices=TOOLKITS, default="batched")
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="N")
    selection = parser.add_argument_group("model selection")
    selection.add_argument(
        "--search",
        type=whole_number(1),
        metavar="N",
        help="try N random configurations first and train the best one",
    )
    selection.add_argument("--folds", type=whole_number(2), default=5, metavar="K")
    selection.add_argument("--jobs", type=whole_number(1), default=1, metavar="N")
    selection.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="where an interrupted search goes on",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="an .npz file"
    )
    parser.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> int:
    """Train an ensemble and save it in original units."""
    output: Path = options.output
    if output.suffix != ".npz":
        raise ValueError(f"Expected an output file ending in .npz, got {output.name}.")
    check_place(output, "--output")
    if options.checkpoint is not None:
        if options.search is None:
            raise ValueError("Expected --checkpoint with --search, got it alone.")
        check_place(options.checkpoint, "--checkpoint")
    table = _table(options)
    configuration = _configuration(options, table)
    toolkit = TOOLKITS[options.toolkit]
    with Bar("networks", configuration.members) as bar:
        trained = train(
            table, configuration, seed=options.seed, toolkit=toolkit, report=bar.add
        )
    trained.ensemble.save(output)
    unit = table.unit(table.target)
    error = f"{trained.rmse_in_units:.4g} {unit}".strip()
    c = trained.configuration
    print(f"data      {table.num_rows} rows, {table.num_inputs} inputs")
    print(f"target    {_with_unit(table.target, unit)}")
    print(
        f"ensemble  {c.members} x {c.layers} hidden layers of {c.width}, "
        f"{sum(trained.epochs)} epochs in all"
    )
    print(
        f"rmse      {error} on {len(trained.test)} test rows "
        f"({trained.rmse:.4f} of the range)"
    )
    print(f"saved     {output}")
    return 0


def _with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _table(options: argparse.Namespace) -> Table:
    if options.data is not None:
        for name in ("sampling", "points", "paper"):
            if getattr(options, name) is not None:
                raise ValueError(
                    f"Expected --{name} with --problem only, got it with --data."
                )
        if options.target is None:
            raise ValueError(
                "Expected --target with --data, got none. Name the column to predict."
            )
        return read_csv(options.data, options.target, drop=options.drop)
    if options.target is not None or options.drop:
        raise ValueError("Expected --target and --drop with --data only.")
    problem = options.problem
    if problem in DATASETS:
        if options.sampling is not None or options.points is not None:
            raise ValueError(
                f"Expected --sampling and --points with a function, got {problem}, "
                "which is a table."
            )
        return problem_table(problem)
    if options.points is None:
        return problem_table(
            problem, sampling=SAMPLINGS[options.sampling or "lhs"], seed=options.seed
        )
    return sample(
        function_named(problem),
        sampling=SAMPLINGS[options.sampling or "lhs"],
        count=options.points,
        seed=options.seed,
    )


def _configuration(options: argparse.Namespace, table: Table) -> Configuration:
    base = Configuration()
    if options.paper is not None:
        choices = paper_configurations(options.problem, options.sampling or "lhs")
        if not 1 <= options.paper <= len(choices):
            raise ValueError(
                f"Expected --paper from 1 to {len(choices)}, got {options.paper}."
            )
        base = choices[options.paper - 1]
    names = (
        "members", "layers", "width", "learning_rate", "batch_size", "bagging",
        "max_epochs", "patience",
    )  # fmt: skip
    given = {
        name: getattr(options, name)
        for name in names
        if getattr(options, name) is not None
    }
    base = replace(base, **given)
    return base if options.search is None else _searched(options, table, base, given)


def _searched(
    options: argparse.Namespace,
    table: Table,
    base: Configuration,
    given: dict[str, Any],
) -> Configuration:
    """The best configuration of a search; what was given is not searched."""
    every = Space(base=base)
    space = replace(
        every,
        members=(given["members"],) if "members" in given else every.members,
        layers=(given["layers"],) if "layers" in given else every.layers,
        widths=(given["width"],) if "width" in given else every.widths,
        batch_sizes=(
            (given["batch_size"],) if "batch_size" in given else every.batch_sizes
        ),
    )
    if "learning_rate" in given:
        raise ValueError(
            "Expected --search or --learning-rate, got both. A search draws the "
            "learning rate."
        )
    with (
        Bar("draws", options.search) as bar,
        worker_processes(options.jobs) as executor,
    ):
        selection = search(
            table,
            space,
            draws=options.search,
            folds=options.folds,
            seed=options.seed,
            toolkit=TOOLKITS[options.toolkit],
            executor=executor,
            checkpoint=options.checkpoint,
            report=bar.set,
        )
    print(f"search    best {min(4, options.search)} of {options.search} draws")
    for candidate in selection.best():
        c = candidate.configuration
        print(
            f"          rmse {candidate.score:.4f}: {c.members} x {c.layers} hidden "
            f"layers of {c.width}, learning rate {c.learning_rate:.3g}, batches of "
            f"{c.batch_size}"
        )
    return selection.best(1)[0].configuration


def add_instances_parser(commands: Any) -> None:
    """Declare ``ennopt instances``."""
    parser = commands.add_parser(
        "instances", help="make and look at the library of instances"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    making = actions.add_parser("make", help="train the instances that are missing")
    making.add_argument("directory", type=Path, metavar="DIR")
    making.add_argument("--profile", choices=PROFILES, default="paper")
    making.add_argument(
        "--problem", action="append", default=[], metavar="NAME", help="only this one"
    )
    making.add_argument("--seed", type=whole_number(0), default=0, metavar="N")
    making.add_argument("--jobs", type=whole_number(1), default=1, metavar="N")
    making.set_defaults(run=run_make)
    publishing = actions.add_parser(
        "publish", help="copy instances into small files that belong in a repository"
    )
    publishing.add_argument("directory", type=Path, metavar="DIR")
    publishing.add_argument("target", type=Path, metavar="TARGET")
    publishing.set_defaults(run=run_publish)
    listing = actions.add_parser(
        "list", help="list the instances of a directory, or the profiles"
    )
    listing.add_argument("directory", type=Path, metavar="DIR", nargs="?")
    listing.set_defaults(run=run_list)
    showing = actions.add_parser("show", help="the record of one instance, as JSON")
    showing.add_argument("directory", type=Path, metavar="DIR")
    showing.add_argument("name", metavar="NAME")
    showing.set_defaults(run=run_show)


def run_make(options: argparse.Namespace) -> int:
    """Make a library."""
    specs = PROFILES[options.profile]
    if options.problem:
        specs = restrict(specs, options.problem)
    with (
        Bar("instances", len(specs)) as bar,
        worker_processes(options.jobs) as executor,
    ):
        records = make(
            options.directory,
            specs,
            seed=options.seed,
            executor=executor,
            report=bar.set,
        )
    print(f"{len(records)} instances in {options.directory}")
    return 0


def run_publish(options: argparse.Namespace) -> int:
    """Copy a library into small files."""
    records = publish(options.directory, options.target)
    print(f"{len(records)} instances in {options.target}")
    return 0


def run_list(options: argparse.Namespace) -> int:
    """List the instances of a directory, or the profiles."""
    if options.directory is None:
        for profile, specs in PROFILES.items():
            problems = len({spec.problem for spec in specs})
            print(f"{profile:<10}{len(specs):>4} instances of {problems} problems")
        return 0
    records = read_manifest(options.directory)["instances"]
    longest = max([4, *map(len, records)])
    print(f"{'name':<{longest}}  inputs  neurons    rmse")
    for name, record in records.items():
        print(
            f"{name:<{longest}}  {record['num_inputs']:>6}  "
            f"{record['num_neurons']:>7}  {record['rmse']:.4f}"
        )
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Show the record of an instance whose file is intact."""
    record = find(options.directory, options.name)
    record["ensemble"] = repr(read_npz(options.directory / record["file"]))
    print(json.dumps(record, indent=1))
    return 0
