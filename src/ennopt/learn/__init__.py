"""From a function or a table to a trained ensemble.

>>> from ennopt.learn import BEALE, Configuration, sample, train
>>> trained = train(sample(BEALE, count=50), Configuration(members=2, max_epochs=1))
>>> trained.ensemble.num_members
2
"""

from ennopt.learn.datasets import (
    AlteredDataError,
    Table,
    concrete,
    read_csv,
    read_frame,
    wine,
)
from ennopt.learn.functions import BEALE, PEAKS, PERM, SPRING, Function, check
from ennopt.learn.hyperparameters import paper_configurations
from ennopt.learn.sampling import (
    LatinHypercube,
    MultivariateNormal,
    problem_table,
    sample,
)
from ennopt.learn.selection import Space, search
from ennopt.learn.training import (
    Batched,
    Configuration,
    ScikitLearn,
    Trained,
    train,
)

__all__ = [
    "BEALE",
    "PEAKS",
    "PERM",
    "SPRING",
    "AlteredDataError",
    "Batched",
    "Configuration",
    "Function",
    "LatinHypercube",
    "MultivariateNormal",
    "ScikitLearn",
    "Space",
    "Table",
    "Trained",
    "check",
    "concrete",
    "paper_configurations",
    "problem_table",
    "read_csv",
    "read_frame",
    "sample",
    "search",
    "train",
    "wine",
]
