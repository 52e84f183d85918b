"""
The lowest point of a surface that was learned
==============================================

An ensemble learns the Peaks function from 2,000 points. ennopt minimizes what it has
learned, and proves that no input predicts less. Because the function itself is known,
we can compare.
"""

# %%
# Train
# -----
# The ensemble is an ordinary scikit-learn model with its scalers.
import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import ennopt
from ennopt.learn import PEAKS

x = PEAKS.domain.sample(2000, np.random.default_rng(0))
y = PEAKS(x)
print("Training five networks on 2000 points of the Peaks function ...")
network = MLPRegressor(
    hidden_layer_sizes=(40, 40), learning_rate_init=0.01, batch_size=64
)
bagging = BaggingRegressor(network, n_estimators=5, random_state=0)
scaled = make_pipeline(MinMaxScaler((-1, 1)), bagging)
model = TransformedTargetRegressor(scaled, transformer=MinMaxScaler()).fit(x, y)
error = np.sqrt(np.mean((model.predict(x) - y) ** 2))
print(f"  root mean squared error {error:.3f} on a range of {np.ptp(y):.1f}")

# %%
# Optimize
# --------
# `verbose=True` writes a log of how value and bound meet.
answer = ennopt.minimize(model, PEAKS.domain, verbose=True)
print(answer)

# %%
# Compare
# -------
point = ", ".join(f"{value:.3f}" for value in PEAKS.optimizer)
print(f"Known minimum of the function: {PEAKS.optimum:.3f} at ({point})")
print(f"Value of the function at our answer: {PEAKS(answer.x):.3f}")

axis = np.linspace(-3, 3, 201)
grid = np.stack(np.meshgrid(axis, axis), axis=-1)
truth = PEAKS(grid)
learned = model.predict(grid.reshape(-1, 2)).reshape(truth.shape)
figure, panels = plt.subplots(1, 2, figsize=(11, 5), sharey=True, layout="constrained")
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
if len(sys.argv) > 1:  # where `make demo` wants the picture
    figure.savefig(sys.argv[1], dpi=130, bbox_inches="tight")
    print(f"Picture: {sys.argv[1]}")
