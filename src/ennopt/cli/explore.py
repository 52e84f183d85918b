"""``ennopt explore``: a page on this computer for people who do not write Python."""

from __future__ import annotations

import argparse

from ennopt.cli.bounds import given_place
from ennopt.cli.question import add_model, no_bounds
from ennopt.convert import load_with_original
from ennopt.domain.files import Stated, read_bounds
from ennopt.options import whole_number


def add_explore(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "explore",
        help="open a page to look at a model and to optimize it",
        description="Open a page on this computer: move sliders and see what the model "
        "predicts, state bounds, constraints, limits, risk and trust in fields, start "
        "runs and compare their answers. Nothing leaves this computer. Ctrl-C ends it.",
    )
    add_model(parser)
    parser.add_argument(
        "--port", type=whole_number(0), default=0, help="default: any that is free"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, open nothing"
    )
    parser.set_defaults(run=run_explore)


def run_explore(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from ennopt.explore.server import Desk, Service  # few commands need the server
    from ennopt.explore.subject import Subject

    loaded = load_with_original(options.model)
    place = given_place(options, loaded.ensemble)
    if place is None:
        raise no_bounds(loaded.ensemble)
    stated = Stated({}) if options.bounds is None else read_bounds(options.bounds)
    subject = Subject(
        options.model, loaded, place,
        None if options.data is None else str(options.data), options.target, stated,
    )  # fmt: skip
    service = Service(Desk(subject), options.port)
    print(f"Open {service.address}", flush=True)
    print("Ctrl-C ends it.", flush=True)
    try:
        service.run(browser=not options.no_browser)
    except KeyboardInterrupt:
        print()
    return 0
