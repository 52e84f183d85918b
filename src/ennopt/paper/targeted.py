"""The paper's targeted strong bounds (Algorithm 2): MILPs for critical neurons only."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.milp import backend, preferred_backend
from ennopt.milp.formulation import big_m
from ennopt.paper.survey import Survey, survey
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.progressive import Tightened, Tightening, seconds_left
from ennopt.tightening.stepwise import (
    Heard,
    Phase,
    never,
    tighten_by_steps,
    unheard,
    unnamed,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Targets(Tightened):
    """What Algorithm 2 did.

    Parameters
    ----------
    bounds
        The result.
    neurons, solves
        Neurons that MILPs worked on, and how many MILPs: the first hidden layer needs
        none, and a neuron whose sign the first MILP decides needs no second one.
    first
        The bounds before the survey.
    survey
        What was surveyed, and how.
    critical
        Critical neurons.
    """

    first: NeuronBounds
    survey: Survey
    critical: int


@dataclass(frozen=True, slots=True)
class Targeted:
    """Algorithm 2: bounds for all neurons, a survey, MILPs for critical neurons.

    Parameters
    ----------
    nodes
        K: fractional solutions to survey.
    threshold
        tau: mean discrepancy from which a neuron is critical. Zero makes every
        unstable neuron critical, infinity none.
    milp_seconds
        Time limit of each of the two MILPs of a critical neuron; at the limit the
        solver's dual bound is kept.
    first
        Bounds of all neurons before the survey, one step after the other.
    backend
        The solver; ``None`` for SCIP where installed, else HiGHS. A solver that does
        not show its nodes gets a survey of linear programs of ours.
    survey_seconds
        Time limit of the survey.
    survey_share
        Most of the time left until the deadline that the survey may take, so that a
        short run has time for the MILPs, too.
    seed
        Of the solver.

    Examples
    --------
    >>> from ennopt import Domain, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> bounds = Targeted().tighten(Canonical.sum_of([net], Domain([-1.0], [2.0])))
    >>> bounds.upper[0][0].round(6).tolist()
    [2.0, 1.0]
    """

    nodes: int = 1000
    threshold: float = 0.01
    milp_seconds: float = 5.0
    first: tuple[Tightening, ...] = (LpTightening(),)
    backend: str | None = None
    survey_seconds: float = math.inf
    survey_share: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"Expected nodes >= 1, got {self.nodes}.")
        if not self.threshold >= 0:
            raise ValueError(f"Expected threshold >= 0, got {self.threshold}.")

    def tighten(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on the problem's domain."""
        return self.run(problem, bounds, executor, deadline).bounds

    def run(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
        *,
        stop: Callable[[], object] = never,
        heard: Heard = unheard,
        phase: Phase = unnamed,
    ) -> Targets:
        """As `tighten`, with what was done.

        Parameters
        ----------
        problem, bounds, executor, deadline
            As for `tighten`.
        stop
            Asked now and then. Return True to end the work.
        heard
            Told bounds as they become known.
        phase
            Opens a span of time under a name.
        """
        with phase("lp_bounds"):
            known = tighten_by_steps(
                self.first, problem, bounds, executor, deadline,
                stop=stop, heard=heard,
            ).bounds  # fmt: skip
        name = self.backend or preferred_backend()
        with phase("survey"):
            left = self.survey_share * seconds_left(deadline)
            # In the neurons' own units: the threshold is a pre-activation.
            seen = survey(
                big_m(problem, known),
                backend(name),
                self.nodes,
                0.0 if stop() else min(self.survey_seconds, left),
                self.seed,
                stop=stop,
            )
        chosen = seen.critical(self.threshold)
        critical = sum(int(layer.sum()) for member in chosen for layer in member)
        done = Tightened(known)
        if critical and not stop():
            with phase("milp_bounds"):
                done = MilpTightening(
                    seconds=self.milp_seconds,
                    backend=name,
                    outputs=False,
                    seed=self.seed,
                ).run(problem, known, executor, deadline, chosen, stop)
        return Targets(
            done.bounds, done.neurons, done.solves,
            first=known, survey=seen, critical=critical,
        )  # fmt: skip
