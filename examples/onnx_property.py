"""
Does a network in an ONNX file have a property?
===============================================

A controller was trained to brake harder the closer the obstacle and the faster the
vehicle. Before it is used, somebody asks: can it ever brake by less than 0.2 at a
distance below 10 metres and a speed above 20 metres a second? The question is written
in the format of the verification community, VNN-LIB, as a description of the
counterexample.
"""

# %%
# A network as an ONNX file
# -------------------------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from skl2onnx import to_onnx
from sklearn.neural_network import MLPRegressor

from ennopt.convert.vnnlib import Property
from ennopt.properties import check_property

rng = np.random.default_rng(0)
x = rng.uniform([0, 0], [100, 40], size=(500, 2)).astype(np.float32)
brake = np.clip(x[:, 1] ** 2 / (16 * (x[:, 0] + 5)), 0, 1)
network = MLPRegressor(
    hidden_layer_sizes=(16, 16), max_iter=400, learning_rate_init=0.01, random_state=0
)
network.fit(x / [100, 40], brake)
file = Path(tempfile.mkdtemp()) / "brake.onnx"
file.write_bytes(to_onnx(network, x[:1] / [100, 40]).SerializeToString())

# %%
# The question
# ------------
# Inputs are scaled to 0 to 1, as the network was trained. `Y_0` is what it commands.
question = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)
(assert (and (>= X_0 0) (<= X_0 0.1) (>= X_1 0.5) (<= X_1 1)))
(assert (<= Y_0 {least}))
"""
for least in (0.2, 0.6, 0.9):
    found = check_property(file, Property.of(question.format(least=least)))
    print(f"always above {least}: {found.verdict}")
    if found.x is not None:
        distance, speed = found.x * [100, 40]
        print(f"  at {distance:.1f} m and {speed:.1f} m/s it commands {found.y[0]:.3f}")

# %%
# What it commands
# ----------------
# The rectangle is what the question is about. "Holds" is proved for every point of it,
# not for the points of a grid.
first, second = np.linspace(0, 1, 120), np.linspace(0, 1, 120)
grid = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
surface = network.predict(grid).reshape(120, 120)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
filled = axes.contourf(100 * first, 40 * second, surface, levels=20)
figure.colorbar(filled, label="braking commanded")
axes.plot([0, 10, 10, 0, 0], [20, 20, 40, 40, 20], "r-", lw=2)
axes.set(xlabel="distance (m)", ylabel="speed (m/s)")
