"""What an installed wheel must be able to do, with nothing else around it.

    python .ci/wheel_check.py            with the compiled kernel
    python .ci/wheel_check.py --plain    without it: the NumPy path answers

Run by `make package` and by the builds of wheels, in an environment that has the wheel
and what it depends on, and no compiler.
"""

import json
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import ennopt


def main() -> None:
    plain = "--plain" in sys.argv
    kernel = find_spec("ennopt._kernel") is not None
    assert kernel != plain, "a kernel" if kernel else "no kernel"
    assert "site-packages" in ennopt.__file__, ennopt.__file__

    rng = np.random.default_rng(0)
    shapes = [(6, 2), (6, 6), (1, 6)]
    nets = [
        ennopt.Network(
            [rng.normal(size=s) for s in shapes],
            [rng.normal(size=s[0]) for s in shapes],
        )
        for _ in range(3)
    ]
    model = ennopt.Ensemble(nets)
    points = rng.uniform(-1, 1, (5000, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the kernel is missing is said once
        for method in ("box", "neurons", "bigm"):
            answer = ennopt.maximize(model, (-1, 1), method=method)
            assert answer.proved, answer
            assert model(points).max() <= answer.bound
    with tempfile.TemporaryDirectory() as folder:
        file, page = Path(folder) / "model.npz", Path(folder) / "report.html"
        model.on_box([-1.0, -1.0], [1.0, 1.0]).save(file)
        command = [
            sys.executable,
            "-m",
            "ennopt",
            "solve",
            str(file),
            "--json",
            "--quiet",
        ]
        done = subprocess.run(
            [*command, "--report", str(page)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert abs(json.loads(done.stdout)["value"] - answer.value) < 1e-3
        assert "<svg" in page.read_text(
            encoding="utf-8"
        )  # templates and style came along
    print(f"ennopt {ennopt.__version__} on Python {sys.version.split()[0]}: fine")


if __name__ == "__main__":
    main()
