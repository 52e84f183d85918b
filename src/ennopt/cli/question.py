"""A decision on the command line: a model and options, or a problem file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ennopt.cli.bounds import add_bounds, add_statements, given_place
from ennopt.domain.files import read_text
from ennopt.domain.where import Place, Where
from ennopt.expressions import Prediction, read_expression
from ennopt.methods import METHODS
from ennopt.network import Ensemble
from ennopt.options import gap, positive_number, whole_number
from ennopt.problem import Sense
from ennopt.problem_file import Decision, read_problem
from ennopt.question import Question
from ennopt.result import MEMORY
from ennopt.risk import NAMED, WRITTEN, Risk, risk_of
from ennopt.several.front import paired
from ennopt.targets import Odds

RUN_OPTIONS = (
    "method", "backend", "time_limit", "node_limit", "memory_limit", "gap", "threads",
    "seed", "threshold", "certificate",
)  # fmt: skip

IN_THE_FILE = (
    "lower", "upper", "bounds", "data", "target", "fix", "constraint", "integer",
    "values", "category", "trust", "sense", "output_index", "output_coefficients",
    "risk", "limit",
)  # fmt: skip
"""What a problem file says itself."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare the model and its bounds."""
    parser.add_argument(
        "model", metavar="MODEL", help="a .npz, .onnx, .keras or .pt file"
    )
    add_bounds(parser)


def add_question(parser: argparse.ArgumentParser) -> None:
    """Declare a model or a problem file, and all that is asked of it."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .npz, .onnx, .keras or .pt file, or a problem file ending in .toml",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the files that a problem file names may be (default: its folder)",
    )
    add_bounds(parser)
    add_statements(parser)
    parser.add_argument("--sense", choices=("max", "min"), help="default: max")
    parser.add_argument(
        "--output-index",
        type=whole_number(0),
        metavar="K",
        help="which output of a model with several, from 0 on",
    )
    parser.add_argument(
        "--output-coefficients",
        type=float,
        nargs="+",
        metavar="C",
        help="optimize a linear combination of the outputs: a number for each",
    )
    parser.add_argument(
        "--risk",
        type=risk_named,
        metavar="RISK",
        help="worst, cvar:0.4, std:1 or mad:1: a pessimistic prediction",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="TEXT",
        help='such as "prediction >= 40" or "std(prediction) <= 2"; may be repeated',
    )
    parser.add_argument(
        "--start",
        type=Path,
        metavar="FILE.json",
        help="a known point: a result that --output wrote, or values by name",
    )


def add_running(parser: argparse.ArgumentParser) -> None:
    """Declare how runs work."""
    parser.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: auto)")
    parser.add_argument(
        "--backend", help="MILP solver of the method: highs, scip or gurobi"
    )
    parser.add_argument(
        "--time-limit",
        type=positive_number,
        metavar="SECONDS",
        help="wall-clock time (default: no limit)",
    )
    parser.add_argument(
        "--node-limit",
        type=positive_number,
        metavar="N",
        help="search nodes (default: no limit)",
    )
    parser.add_argument(
        "--memory-limit",
        type=positive_number,
        metavar="BYTES",
        help=f"memory for open nodes, such as 4e9 (default: {MEMORY:.3g})",
    )
    parser.add_argument(
        "--gap",
        type=gap,
        help="relative gap to prove, absolute near zero (default: 1e-4)",
    )
    parser.add_argument(
        "--threads", type=whole_number(1), metavar="N", help="default: every core"
    )
    parser.add_argument("--seed", type=whole_number(0), metavar="N", help="default: 0")
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="also write the result as JSON"
    )
    parser.add_argument("--quiet", action="store_true", help="no log on standard error")


def risk_named(text: str) -> Risk | None:
    """A risk from the command line.

    Examples
    --------
    >>> risk_named("cvar:0.4")
    Cvar(share=0.4)
    """
    if ":" not in text and text not in ("mean", *NAMED):
        raise argparse.ArgumentTypeError(f"Expected {WRITTEN}, got {text!r}.")
    try:
        return risk_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def file_asked(options: argparse.Namespace) -> Decision | None:
    """The problem file that the command line names, if it names one."""
    if Path(options.model).suffix.lower() != ".toml":
        if options.folder is not None:
            raise ValueError(
                "Expected --folder with a problem file, got it with a model. Leave it "
                "out."
            )
        return None
    for name in IN_THE_FILE:
        if getattr(options, name):
            raise ValueError(
                f"Expected all of the decision in {Path(options.model).name}, got "
                f"--{name.replace('_', '-')} beside it. Write it into the file."
            )
    return read_problem(options.model, folder=options.folder)


def question_asked(
    options: argparse.Namespace, *, single: bool = False, **words: Any
) -> Question:
    """What the command line asks about one goal."""
    words = {**run_words(options), **words}
    decision = file_asked(options)
    if decision is not None:
        return decision.question(words, single=single)
    goals: list[tuple[Any, Sense]] = [(options.model, options.sense or "max")]
    return model_asked(options, goals, words, single=single)


def front_asked(
    options: argparse.Namespace, objectives: Sequence[str] | None,
    senses: Sequence[Sense] | None,
) -> tuple[Question, list[str], int | None]:  # fmt: skip
    """What the command line asks about two goals: names, and points if a file says."""
    words, decision = run_words(options), file_asked(options)
    if decision is not None:
        goals, names = decision.goals(objectives, senses)
        return decision.question(words, goals), names, decision.fronts.get("points")
    if objectives is None:
        raise ValueError(
            "Expected --objectives with a model, got none. Write two, such as "
            '"2*x0 + x1" and prediction.'
        )
    if options.sense is not None:
        raise ValueError("Expected --senses max min, got --sense. Write both senses.")
    known = {
        "prediction": Prediction(
            options.model, output=_wanted_output(options), risk=options.risk
        )
    }
    inputs = known["prediction"].ensemble.input_names
    found = [read_expression(text, known, inputs) for text in objectives]
    options.risk = None
    goals = paired(found, senses or ("max", "max"))
    return model_asked(options, goals, words, alone=False), list(objectives), None


def run_words(options: argparse.Namespace) -> dict[str, Any]:
    """Keywords about the run, of options that were given."""
    words = {name: getattr(options, name, None) for name in RUN_OPTIONS}
    words = {name: given for name, given in words.items() if given is not None}
    if options.start is not None:
        words["start"] = read_point(options.start)
    return words


def read_point(path: Path) -> dict[str, Any]:
    """A point by name, from a result or a plain object in JSON."""
    try:
        found = json.loads(read_text(path, "a file with a known point"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"Expected JSON, got {error} in {path.name}.") from error
    if isinstance(found, dict) and "x_by_name" in found:
        found = found.get("inputs") or found["x_by_name"]
    if not isinstance(found, dict):
        raise ValueError(
            f"Expected a result with an answer, or values by name, got {found!r:.60} "
            f"in {path.name}."
        )
    return found


def model_asked(
    options: argparse.Namespace,
    goals: Sequence[tuple[Any, Sense]],
    words: dict[str, Any],
    *,
    single: bool = False,
    alone: bool = True,
) -> Question:
    """A question about a model, whose inputs options describe."""
    output = _wanted_output(options)

    def placed(ensemble: Ensemble) -> Place:
        if isinstance(ensemble.target, Odds):
            pass  # the class is chosen
        elif output is None or isinstance(output, int):
            check_index(output, ensemble)
        elif len(output) != ensemble.num_outputs:
            raise ValueError(
                f"Expected {ensemble.num_outputs} numbers at --output-coefficients, "
                f"one for each output, got {len(output)}."
            )
        place = given_place(options, ensemble)
        if place is None:
            raise no_bounds(ensemble)
        return place

    said = {**words, "limits": options.limit}
    if alone:
        said |= {"output": output, "risk": options.risk}
    question = Question.of(goals, None, said, "solve", single=single)
    where = Where(
        domain=options.bounds, categories=dict(options.category) or None,
        fixed={},
    )  # fmt: skip
    return Question(
        question.goals, where, question.running, question.output, question.risk,
        question.limits, question.start, placed,
    )  # fmt: skip


def no_bounds(ensemble: Ensemble) -> ValueError:
    """What is said if neither the options nor the model bound the inputs."""
    return ValueError(
        f"Expected bounds for the {ensemble.num_inputs} inputs, got none, and the "
        "model records no box. Add --lower and --upper, --bounds FILE or --data "
        "FILE.csv."
    )


def check_index(index: int | None, ensemble: Ensemble) -> None:
    """Refuse an index of no output, and several outputs without one."""
    last = ensemble.num_outputs - 1
    if index is None and last > 0:
        raise ValueError(
            f"Expected the output to optimize, got none for a model of {last + 1} "
            f"outputs. Add --output-index K, K from 0 to {last}."
        )
    if index is not None and index > last:
        raise ValueError(f"Expected --output-index from 0 to {last}, got {index}.")


def _wanted_output(options: argparse.Namespace) -> Any:
    """The output or the combination of outputs that the options name."""
    if options.output_coefficients is None:
        return options.output_index
    if options.output_index is not None:
        raise ValueError(
            "Expected --output-index or --output-coefficients, got both. Leave one out."
        )
    return options.output_coefficients
