"""The order of the examples: from the first steps to special ones."""

STORY = (
    "peaks.py",
    "reactor.py",
    "concrete.py",
    "trust_regions.py",
    "least_cost.py",
    "recipe.py",
    "wine.py",
    "worst_member.py",
    "pareto.py",
    "torch_ensemble.py",
    "pyomo_model.py",
    "onnx_property.py",
    "certificate.py",
    "cluster.py",
)


class Told:
    """Sorts the files of the gallery; what the story does not name comes last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        return (STORY.index(name) if name in STORY else len(STORY), name)

    def __repr__(self) -> str:
        return "Told"
