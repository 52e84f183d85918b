"""The templates, filled: the page of an answer and its form in a notebook."""

from __future__ import annotations

import datetime
from functools import cache
from importlib import resources
from typing import Any

from ennopt.network import shown
from ennopt.pages import drawn, told
from ennopt.pages.charts import compact
from ennopt.pages.coordinates import has_equations
from ennopt.pages.limited import limited
from ennopt.pages.repeat import repeat
from ennopt.result import Result
from ennopt.version import VERSION

STYLE = "style.css"
"""The style sheet of every page."""


@cache
def _environment() -> Any:
    """Templates of this room. What they are filled with is text, never HTML."""
    import jinja2 as jinja

    environment = jinja.Environment(
        loader=jinja.PackageLoader(__package__), autoescape=True,
        undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment


def filled(template: str, **content: Any) -> str:
    """A template of this room, filled."""
    return str(_environment().get_template(template).render(**content))


def style(*more: str) -> str:
    """The style sheet, for a page that is one file, and what one page has beside it."""
    folder = resources.files(__package__)
    return "".join(folder.joinpath(name).read_text("utf-8") for name in (STYLE, *more))


def page(result: Result) -> str:
    """The report of an answer: one HTML page that loads nothing."""
    asked = result.asked
    shown_lines = drawn.lines(result)
    shown_planes = drawn.planes(result, shown_lines)
    beside = limited(result)
    weights = () if asked is None else asked.problem.ensemble.weights
    return filled(
        "report.html",
        style=style(),
        result=result,
        verdict=told.verdict(result),
        is_prediction=told.is_prediction(result),
        objective=told.objective(result),
        tiles=[*told.tiles(result), *(one.tile for one in beside)],
        limited=[
            {"name": one.name, "tile": one.tile, "slices": one.slices(result)}
            for one in beside
        ],
        warning=told.warnings(result),
        recipe=told.recipe(result),
        members=drawn.members(result),
        members_of=shown(str(result.details.get("members_of", ""))),
        weights=[compact(float(weight)) for weight in weights],
        convergence=drawn.convergence(result),
        nearest=told.nearest_rows(result),
        distances=drawn.distances(result),
        histograms=drawn.histograms(result),
        slices=drawn.slices(result, shown_lines),
        surfaces=drawn.surfaces(result, shown_planes),
        searched=drawn.searched(result, shown_planes),
        colours=drawn.colour_scale(shown_planes),
        equations=asked is not None and has_equations(asked.problem.domain),
        held=told.held_by(result),
        phases=told.phases(result),
        total=told.seconds_in_words(result.seconds.get("total", 0.0)),
        repeat=None if asked is None else repeat(asked, result.sense),
        facts=told.facts(result),
        conflict=result.contradictory,
        made=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        version=VERSION,
        compact=compact,
    )


def card(result: Result) -> str:
    """An answer in a notebook: small, without a style sheet of its page."""
    return filled(
        "card.html",
        result=result,
        verdict=told.verdict(result),
        tiles=told.tiles(result),
        warning=told.warnings(result),
        recipe=told.recipe(result),
        held=told.held_by(result),
        conflict=result.contradictory,
        compact=compact,
    )
