"""What neurons do with their pre-activations, and lines above and below that."""

from ennopt.activations.envelope import Lines
from ennopt.activations.kinds import (
    ACTIVATIONS,
    ELU,
    GELU,
    RELU,
    Activation,
    GELUTanh,
    Mixed,
    ReLU,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
    activation_named,
)

__all__ = [
    "ACTIVATIONS",
    "ELU",
    "GELU",
    "RELU",
    "Activation",
    "GELUTanh",
    "Lines",
    "Mixed",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Tanh",
    "activation_named",
]
