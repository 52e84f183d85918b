"""``ennopt pareto``, ``alternatives`` and ``sensitivity``: several runs in a row."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ennopt.cli.question import (
    add_question,
    add_running,
    file_asked,
    front_asked,
    question_asked,
)
from ennopt.cli.solve import EXIT_INTERRUPTED, EXIT_NO_ANSWER, termination_like_ctrl_c
from ennopt.options import check_place, number, whole_number
from ennopt.question import Question
from ennopt.result import Status
from ennopt.several.alternatives import (
    COUNT,
    DISTANCE,
    Alternatives,
    find_alternatives,
)
from ennopt.several.front import POINTS, Front, find_front
from ennopt.several.sensitivity import Sensitivity, leave_members_out


def add_pareto(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt pareto``."""
    parser = commands.add_parser(
        "pareto",
        help="what must be given up of one objective for more of another",
        description="Find proved points of the front of two objectives: texts about "
        "predictions and inputs, in the table [pareto] of a problem file or here.",
    )
    add_question(parser)
    parser.add_argument(
        "--objectives",
        nargs=2,
        metavar="TEXT",
        help='such as "2*x0 + x1" and prediction',
    )
    parser.add_argument(
        "--senses", nargs=2, choices=("max", "min"), help="default: max max"
    )
    parser.add_argument(
        "--points", type=whole_number(2), metavar="N", help=f"default: {POINTS}"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also draw the front: .png, .svg, .pdf",
    )
    add_running(parser)
    parser.set_defaults(run=run_pareto)


def add_alternatives(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    """Declare ``ennopt alternatives``."""
    parser = commands.add_parser(
        "alternatives",
        help="the best answers that differ",
        description="Find the best answers that differ by a distance, each proved best "
        "among what is left.",
    )
    add_question(parser)
    parser.add_argument(
        "--count", type=whole_number(1), metavar="K", help=f"default: {COUNT}"
    )
    parser.add_argument(
        "--distance",
        type=_distance,
        action="append",
        metavar="SHARE or NAME=NUMBER",
        help="how far answers must be apart in an input at least: a share of each "
        f"input's range (default: {DISTANCE}), or numbers by name; may be repeated",
    )
    add_running(parser)
    parser.set_defaults(run=run_alternatives)


def add_sensitivity(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    """Declare ``ennopt sensitivity``."""
    parser = commands.add_parser(
        "sensitivity",
        help="the optimum without each member, and what the answer loses there",
        description="Solve a decision again without each member of its ensembles.",
    )
    add_question(parser)
    add_running(parser)
    parser.set_defaults(run=run_sensitivity)


def run_pareto(options: argparse.Namespace) -> int:
    """Find a front and print it."""
    question, names, points = front_asked(options, options.objectives, options.senses)
    _check_places(options)
    if options.plot is not None:
        check_place(options.plot, "--plot")
    with termination_like_ctrl_c():
        found = find_front(
            _loud(question, options), options.points or points or POINTS, names
        )
    if options.plot is not None:
        figure = found.plot().figure
        figure.savefig(options.plot, dpi=150)
    return _told(found, options, empty=not found.points)


def run_alternatives(options: argparse.Namespace) -> int:
    """Find answers that differ and print them."""
    question, decision = question_asked(options), file_asked(options)
    _check_places(options)
    answers = {} if decision is None else decision.answers
    distance = answers.get("distance", DISTANCE)
    if options.distance:
        named: dict[str, float] = dict(
            entry for entry in options.distance if isinstance(entry, tuple)
        )
        if len(named) < len(options.distance) and len(options.distance) > 1:
            raise ValueError(
                "Expected one share of all ranges or numbers by name at --distance, "
                "got both. Leave one out."
            )
        distance = named or options.distance[0]
    with termination_like_ctrl_c():
        found = find_alternatives(
            _loud(question, options), options.count or answers.get("count", COUNT),
            distance,
        )  # fmt: skip
    return _told(found, options, empty=not found.results)


def run_sensitivity(options: argparse.Namespace) -> int:
    """Leave members out and print what that changes."""
    question = question_asked(options)
    _check_places(options)
    with termination_like_ctrl_c():
        found = leave_members_out(_loud(question, options))
    return _told(found, options, empty=found.answer.x is None)


def _distance(text: str) -> float | tuple[str, float]:
    name, sign, value = text.rpartition("=")
    return (name.strip(), number(value)) if sign else number(text)


def _check_places(options: argparse.Namespace) -> None:
    if options.output is not None:
        check_place(options.output, "--output")


def _loud(question: Question, options: argparse.Namespace) -> Question:
    """The question with a log on standard error, unless that is unwanted."""
    running = replace(question.running, verbose=not options.quiet)
    return replace(question, running=running)


def _told(
    found: Front | Alternatives | Sensitivity, options: argparse.Namespace, *,
    empty: bool,
) -> int:  # fmt: skip
    """Print what was found, return the exit status."""
    if options.output is not None:
        options.output.write_text(found.to_json(indent=2) + "\n", encoding="utf-8")
    print(found.to_json() if options.json else found.summary())
    if found.status is Status.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_NO_ANSWER if empty else 0
