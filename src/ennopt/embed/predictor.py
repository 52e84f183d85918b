"""`add_predictor_constr`: a trained model inside an optimization model of the user."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from ennopt.activations import RELU
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.convert import load_with_original
from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.convert.verify import Original, has_default_names
from ennopt.domain import Domain, Rows
from ennopt.embed.addition import Addition, Steps, attached, made_addition, steps_of
from ennopt.embed.host import Added, Host, Objects, host_of
from ennopt.embed.variables import check_variables, input_matrix, output_matrix
from ennopt.network import Array, Ensemble, ModelConfigurationError, shown
from ennopt.targets import Link


def add_predictor_constr(
    solver_model: Any,
    predictor: Any,
    input_vars: Any,
    output_vars: Any = None,
    *,
    bounds: Steps = "lp",
    formulation: str | None = None,
    constraints: bool = False,
    time_limit: float | None = None,
    name: str | None = None,
) -> PredictorConstr:
    """Make variables of an optimization model equal to the predictions of a model.

    Parameters
    ----------
    solver_model
        A ``gurobipy.Model``, a ``pyscipopt.Model``, a ``highspy.Highs``, or a Pyomo
        model or block.
    predictor
        Anything that `ennopt.load` takes: a scikit-learn, PyTorch, Keras or ONNX model
        with ReLU activations, an `Ensemble`, a list of these (their mean), a path.
    input_vars
        Variables for the inputs of one sample, or a row of them for each sample: lists,
        arrays, a DataFrame, a dictionary, an ``MVar``, an indexed variable of Pyomo.
        Columns and keys are matched by the names of the inputs, where the predictor
        knows these. A number stands for an input that is constant.
    output_vars
        Variables for the predictions, (num_samples, num_outputs); ``None`` to have
        them made.
    bounds
        How the neurons are bounded. Closer bounds take longer and make the model easier
        to solve: ``"interval"``, ``"crown"``, ``"lp"`` (linear programs), ``"search"``
        (small searches of our own, and the range of the predictions by a search),
        ``"targeted"`` (MILPs for critical neurons), ``"milp"`` (MILPs for all of them),
        or tightenings such as ``ennopt.Crown()``.
    formulation
        How neurons are stated: ``"bigm"`` by binary variables, ``"sos"`` by special
        ordered sets, which HiGHS does not know; ``None`` for what is faster as a rule,
        sets in SCIP and binaries elsewhere.
    constraints
        Whether the linear constraints of the model that concern the inputs alone are
        used for the bounds, too. Do not remove these from the model afterwards.
    time_limit
        Seconds for the bounds of all samples; ``None`` for no limit.
    name
        Begins the names of all that is added.

    Returns
    -------
    PredictorConstr
        The variables and constraints added, and the error at the solution.

    Notes
    -----
    Every input variable needs finite bounds: the neurons are bounded where these allow
    the inputs to lie. The bounds are read once. They may be narrowed afterwards; after
    they were widened, call `PredictorConstr.remove` and add the predictor again.

    Examples
    --------
    >>> import highspy
    >>> from ennopt import Network
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> model = highspy.Highs()
    >>> _ = model.setOptionValue("output_flag", False)
    >>> x, cost = model.addVariable(lb=-2, ub=1), model.addVariable(lb=0)
    >>> added = add_predictor_constr(model, absolute, [x])
    >>> _ = model.addConstr(cost >= 1.5 + x)
    >>> _ = model.addConstr(added.output[0, 0] >= 1)
    >>> _ = model.minimize(cost)
    >>> added.input_values.round(6).item() <= -1, float(added.get_error().max()) < 1e-6
    (True, True)
    """
    host = host_of(solver_model)
    steps_of(bounds)  # refuses before the predictor is read
    seconds = math.inf if time_limit is None else float(time_limit)
    if not seconds > 0:
        raise ValueError(f"Expected time_limit > 0, got {time_limit}.")
    if formulation is None:
        formulation = host.formulations[0]
    if formulation not in host.formulations:
        raise ValueError(
            f"Expected formulation {' or '.join(map(repr, host.formulations))} for "
            f"{host.name}, got {formulation!r}."
        )
    host.open()
    ensemble, original = load_with_original(predictor)
    _expect_predictions(ensemble)
    _expect_relu(ensemble)
    names = None if has_default_names(ensemble) else ensemble.input_names
    inputs = input_matrix(host, input_vars, names, ensemble.num_inputs)
    check_variables(
        host, inputs, lambda j: f"input {shown(ensemble.input_names[j])}", True
    )
    outputs = None
    if output_vars is not None:
        outputs = output_matrix(host, output_vars, len(inputs), ensemble.num_outputs)
        check_variables(host, outputs, lambda j: f"output {j}", False)
    domains = _domains(host, ensemble, inputs, constraints)
    additions = _additions(ensemble, domains, bounds, formulation, seconds)
    title = f"ennopt{host.num_variables()}" if name is None else str(name)
    added, outputs = _added(host, additions, inputs, outputs, title)
    return PredictorConstr(
        ensemble, original, host, title, inputs, outputs, added,
        tuple(addition.bounds for addition in additions), output_vars is None,
    )  # fmt: skip


@dataclass(eq=False, repr=False)
class PredictorConstr:
    """What `add_predictor_constr` added to a model, and what the solver made of it.

    Users do not make these objects themselves.

    Parameters
    ----------
    predictor
        The predictor as an ensemble of networks.
    original
        The model that it was converted from, if it was.
    host
        The model that it was added to.
    name
        Begins the names of all that was added.
    inputs, outputs
        Variables and numbers, (num_samples, num_inputs) and (num_samples,
        num_outputs).
    added
        One entry for each sample.
    bounds
        The bounds of the neurons, one entry for each sample.
    owns_outputs
        Whether the output variables were made here.
    """

    predictor: Ensemble
    original: Original | None
    host: Host
    name: str
    inputs: Objects
    outputs: Objects
    added: list[Added]
    bounds: tuple[NeuronBounds, ...]
    owns_outputs: bool

    @property
    def input(self) -> Any:
        """The input variables, (num_samples, num_inputs)."""
        return self.host.matrix(self.inputs)

    @property
    def output(self) -> Any:
        """The output variables, (num_samples, num_outputs)."""
        return self.host.matrix(self.outputs)

    @property
    def input_values(self) -> Array:
        """The inputs in the solution, (num_samples, num_inputs)."""
        return self._values(self.inputs)

    @property
    def output_values(self) -> Array:
        """The outputs in the solution, as the solver has them."""
        return self._values(self.outputs)

    @property
    def vars(self) -> list[Any]:
        """All variables that were made."""
        return [one for part in self.added for one in part.variables]

    @property
    def constrs(self) -> list[Any]:
        """All constraints that were made."""
        return [one for part in self.added for one in part.constraints]

    def get_error(self, eps: float | None = None) -> Array:
        """How far the outputs in the solution are from what the predictor says.

        Parameters
        ----------
        eps
            Print samples whose error is above this; ``None`` prints nothing.

        Returns
        -------
        Array
            Absolute differences, (num_samples, num_outputs).

        Raises
        ------
        NoSolutionError
            When the model has no solution yet.
        """
        points, found = self.input_values, self.output_values
        said = self.predictor(points)
        if self.original is not None:
            theirs = np.asarray(self.original.predict(points), dtype=np.float64)
            said = theirs.reshape(said.shape)
        error = np.abs(said - found)
        if eps is not None:
            for (r, k), one in np.ndenumerate(error):
                if one > eps:
                    print(
                        f"Sample {r}, output {k}: the predictor says {said[r, k]:.8g}, "
                        f"the solution has {found[r, k]:.8g}."
                    )
        return np.asarray(error)

    def print_stats(self, abbrev: bool = False, file: TextIO | None = None) -> None:
        """Print what was added.

        Parameters
        ----------
        abbrev
            On one line.
        file
            Where to; standard output by default.
        """
        neurons = sum(known.num_hidden for known in self.bounds)
        unstable = sum(known.num_unstable for known in self.bounds)
        parts = [
            f"{len(self.vars)} variables, {len(self.constrs)} constraints",
            f"{neurons} neurons, {unstable} of them with an open sign",
            f"inputs {self.inputs.shape}, outputs {self.outputs.shape}",
        ]
        if abbrev:
            print(f"{self.name}: {'; '.join(parts)}", file=file)
            return
        print(f"{self.name}: {self.predictor!r}", file=file)
        for part in parts:
            print(f"  {part}", file=file)

    def remove(self) -> None:
        """Take out of the model what was added to it.

        Output variables that were made here count as zero in constraints that still use
        them. A second call does nothing.
        """
        made = list(self.outputs.ravel()) if self.owns_outputs else []
        last_first = reversed(list(enumerate(self.added)))
        width = self.outputs.shape[1]
        for r, part in last_first:
            self.host.remove(part, made[r * width : (r + 1) * width])
        self.added = []

    def _values(self, matrix: Objects) -> Array:
        asked = [one for one in matrix.flat if not isinstance(one, float)]
        found = iter(self.host.values(asked))
        values = [one if isinstance(one, float) else next(found) for one in matrix.flat]
        return np.array(values, dtype=np.float64).reshape(matrix.shape)

    def __repr__(self) -> str:
        return (
            f"PredictorConstr({self.name}: {self.predictor!r}, {len(self.inputs)} "
            f"sample{'s' * (len(self.inputs) != 1)})"
        )


def _expect_predictions(ensemble: Ensemble) -> None:
    if ensemble.target is None:
        return
    if isinstance(ensemble.target, Link):
        what = f"one whose outputs go through {ensemble.target.name}"
    else:
        what = f"the classifier {ensemble.source}"
    raise PredictorNotSupportedError(
        f"Expected a model whose outputs are its predictions, got {what}, which linear "
        "constraints cannot state. Pass the networks without that last step."
    )


def _expect_relu(ensemble: Ensemble) -> None:
    for i, member in enumerate(ensemble.members):
        for k, kind in enumerate(member.activations):
            if kind != RELU:
                raise ModelConfigurationError(
                    f"Expected ReLU activations, which linear constraints can state, "
                    f"got {kind.name} at hidden layer {k} of member {i}. Train the "
                    "network with ReLU, or optimize it by ennopt.maximize."
                )


def _domains(
    host: Host, ensemble: Ensemble, inputs: Objects, constraints: bool
) -> list[Domain]:
    """Where the model lets the inputs of each sample lie."""
    rows = list(host.rows()) if constraints else []
    found = []
    for r, sample in enumerate(inputs):
        ends = []
        for j, one in enumerate(sample):
            if host.is_variable(one):
                low, high = host.ends(one)
                if not (math.isfinite(low) and math.isfinite(high)):
                    called = shown(ensemble.input_names[j])
                    where = f"input {called}" + f", sample {r}" * (len(inputs) > 1)
                    raise ValueError(
                        f"Expected finite bounds of the input variables, got [{low:g}, "
                        f"{high:g}] at variable {shown(host.title(one))} ({where}). "
                        "Bound it in the model by where the predictor may be trusted."
                    )
                ends.append((low, high))
            else:
                ends.append((float(one), float(one)))
        lower, upper = np.array(ends).T
        own = _rows_on(host, sample, rows)
        found.append(Domain(lower, upper, ensemble.input_names, own))
    return found


def _rows_on(host: Host, sample: Objects, rows: Sequence[Any]) -> Rows:
    """The constraints that concern the variables of a sample and no others."""
    places = {host.key(one): j for j, one in enumerate(sample) if host.is_variable(one)}
    matrix, sides = [], []
    for row in rows:
        if row.coefficients and row.coefficients.keys() <= places.keys():
            slopes = np.zeros(len(sample))
            for key, coefficient in row.coefficients.items():
                slopes[places[key]] = coefficient
            matrix.append(slopes)
            sides.append((row.least, row.most))
    least, most = np.array(sides).reshape(-1, 2).T
    return Rows(np.array(matrix).reshape(-1, len(sample)), least, most)


def _additions(
    ensemble: Ensemble,
    domains: Sequence[Domain],
    bounds: Steps,
    formulation: str,
    seconds: float,
) -> list[Addition]:
    """What each sample adds; samples that lie in the same set share their bounds."""
    made: dict[bytes, Addition] = {}
    keys = [
        b"".join(
            side.tobytes()
            for side in (
                domain.lower, domain.upper, domain.rows.matrix, domain.rows.least,
                domain.rows.most,
            )
        )
        for domain in domains
    ]  # fmt: skip
    share = seconds / len(set(keys))
    for key, domain in zip(keys, domains, strict=True):
        if key not in made:
            made[key] = made_addition(ensemble, domain, bounds, formulation, share)
    return [made[key] for key in keys]


def _added(
    host: Host, additions: Sequence[Addition], inputs: Objects,
    outputs: Objects | None, title: str,
) -> tuple[list[Added], Objects]:  # fmt: skip
    """Add the samples one by one; the output variables are made where there are none.

    Numbers among the inputs become plain floats.
    """
    for at, one in np.ndenumerate(inputs):
        if not host.is_variable(one):
            inputs[at] = float(one)
    m = additions[0].model.num_columns - inputs.shape[1] - len(additions[0].names)
    parts, made = [], np.empty((len(inputs), m), dtype=object)
    for r, (addition, sample) in enumerate(zip(additions, inputs, strict=True)):
        own = title if len(inputs) == 1 else f"{title}_{r}"
        slots = [*sample] if outputs is None else [*sample, *outputs[r]]
        names = [f"{own}_{one}" for one in addition.names]
        if outputs is None:
            names = [*(f"{own}_out_{k}" for k in range(m)), *names]
        model, known = attached(addition.model, slots, host.key)
        shift = len(known) - len(slots)
        pairs = [(one + shift, other + shift) for one, other in addition.pairs]
        part = host.add(model, pairs, known, names, own)
        parts.append(part)
        made[r] = part.variables[:m] if outputs is None else outputs[r]
    return parts, made
