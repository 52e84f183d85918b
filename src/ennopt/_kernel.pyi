"""Types of the compiled kernel, src/kernel/bindings.cpp."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Part = tuple[Array, Array, Array, Array]
Group = tuple[list[int], int, float, float]
Function = tuple[Array, list[Group], float, float, float, float, float]

def instruction_sets() -> list[str]: ...
def bound_boxes(
    model: Model,
    settings: Settings,
    nodes: Array,
    cutoff: float,
    instruction_set: str = "",
) -> tuple[Array, Array, Array, Array, Array, Array]: ...
def lines(kind: int, alpha: float, lower: Array, upper: Array) -> Array: ...
def sign_multipliers(signs: Signs, nodes: Array, cutoff: float) -> Array: ...
def sign_solution(
    signs: Signs, node: Array, cutoff: float
) -> tuple[Array, Array, Array, Array]: ...
def bound_signs(
    signs: Signs, nodes: Array, cutoff: float
) -> tuple[Array, Array, Array]: ...
def proved_by(
    signs: Signs, allowed: Bytes, multipliers: Array, share: float = 1.0
) -> float: ...

class Model:
    @staticmethod
    def make(
        stacks: list[list[Part]],
        lower: Array,
        upper: Array,
        slopes: Array,
        sides: Array,
        inner: Array,
        whole: list[bool],
        lists: list[list[float]],
        near: list[tuple[Array, Array, int]],
        outer: bool,
        unit: float,
        spread: float,
        noise: float,
        gamma: float,
        activations: list[list[list[tuple[int, float]]]],
        functions: list[Function],
        pieces: list[tuple[int, int, int, float]],
    ) -> Model: ...
    def guide(self, x: Array) -> None: ...
    def evaluate(self, x: Array) -> float: ...

class BoxLayout:
    def __init__(self, inputs: int, neurons: int, cuts: int = 1) -> None: ...
    @property
    def stride(self) -> int: ...
    def places(self) -> list[int]: ...

class Settings:
    max_steps: int
    row_slopes: bool
    vertex_lines: bool
    output_lines: bool
    again: float
    programs: int
    single: bool

class Scheme: ...

class Boxes(Scheme):
    def __init__(
        self,
        model: Model,
        settings: Settings,
        instruction_set: str = "",
        outputs: Array | None = None,
        learned: int = 0,
    ) -> None: ...

class Signs(Scheme):
    def __init__(
        self,
        model: Model,
        low: Array,
        high: Array,
        instruction_set: str,
        outputs: Array,
        learned: int,
        room: float,
        lines: list[tuple[int, float, list[float]]] = ...,
    ) -> None: ...

class Tree:
    def __init__(
        self,
        scheme: Scheme,
        gap: float,
        floor: float,
        least: float,
        journal: bool = False,
    ) -> None: ...
    @property
    def open(self) -> int: ...
    @property
    def bound(self) -> float: ...
    @property
    def closed(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def cutoff(self) -> float: ...
    @property
    def operations(self) -> float: ...
    def plant(self) -> None: ...
    def offer(self, x: Array) -> bool: ...
    def add(self, nodes: Array) -> None: ...
    def narrow(self, slopes: Array, sides: Array) -> None: ...
    def take(self, most: int) -> Array: ...
    def close(self, bound: float) -> None: ...
    def points(self) -> Array: ...
    def candidates(self) -> Array: ...
    def snapshot(self) -> Array: ...
    def number_from(self, last: int) -> None: ...
    def journal(self) -> Array: ...
    def explore(
        self,
        nodes: float,
        seconds: float,
        bytes: float,
        dive: int,
        threads: int,
        eager: bool = False,
    ) -> int: ...
