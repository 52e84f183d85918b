"""Train an ensemble on the Peaks function, optimize it to a proof, draw it.

The ensemble is an ordinary scikit-learn model with its scalers; ennopt converts it,
minimizes its prediction over the box and proves that no input predicts less.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import ennopt
from ennopt.learn.functions import PEAKS

PICTURE = Path("out/peaks.png")


def train(x: np.ndarray, y: np.ndarray) -> TransformedTargetRegressor:
    """Five bagged networks of two hidden layers, inputs and output scaled."""
    network = MLPRegressor(
        hidden_layer_sizes=(40, 40), learning_rate_init=0.01, batch_size=64
    )
    bagging = BaggingRegressor(network, n_estimators=5, random_state=0)
    scaled = make_pipeline(MinMaxScaler((-1, 1)), bagging)
    model = TransformedTargetRegressor(scaled, transformer=MinMaxScaler())
    return model.fit(x, y)


def draw(model: TransformedTargetRegressor, answer: ennopt.Result) -> None:
    """What the ensemble learned, beside the truth, with both minima."""
    axis = np.linspace(-3, 3, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    truth = PEAKS(grid)
    learned = model.predict(grid.reshape(-1, 2)).reshape(truth.shape)
    figure, panels = plt.subplots(
        1, 2, figsize=(11, 5), sharey=True, layout="constrained"
    )
    titles = ("the function", "the ensemble")
    for panel, surface, title in zip(panels, (truth, learned), titles, strict=True):
        filled = panel.contourf(axis, axis, surface, levels=24, cmap="viridis")
        panel.contour(axis, axis, surface, levels=24, colors="white", linewidths=0.3)
        known = f"minimum of the function {PEAKS.optimum:.3f}"
        proved = f"proved minimum of the ensemble {answer.value:.3f}"
        panel.plot(*PEAKS.optimizer, "wo", ms=11, mfc="none", mew=2, label=known)
        panel.plot(*answer.x, "r*", ms=13, mec="white", label=proved)
        panel.set(title=f"Peaks: {title}", xlabel="x1", aspect="equal")
    panels[0].set_ylabel("x2")
    panels[0].legend(loc="upper left", fontsize="small")
    figure.colorbar(filled, ax=panels, shrink=0.9)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=130, bbox_inches="tight")


def main() -> None:
    """The whole way from data to a proved optimum."""
    rng = np.random.default_rng(0)
    x = PEAKS.domain.sample(2000, rng)
    y = PEAKS(x)
    print("Training five networks on 2000 points of the Peaks function ...")
    model = train(x, y)
    error = np.sqrt(np.mean((model.predict(x) - y) ** 2))
    print(f"  root mean squared error {error:.3f} on a range of {np.ptp(y):.1f}\n")

    ensemble = ennopt.load(model)
    print(f"{ensemble}\n")
    answer = ennopt.minimize(ensemble, PEAKS.domain, verbose=True)
    print(f"\n{answer}\n")

    point = ", ".join(f"{value:.3f}" for value in PEAKS.optimizer)
    print(f"Known minimum of the function: {PEAKS.optimum:.3f} at ({point})")
    print(f"Value of the function at our answer: {PEAKS(answer.x):.3f}")
    draw(model, answer)
    print(f"Picture: {PICTURE}")


if __name__ == "__main__":
    main()
