"""
A proof that somebody else can check
====================================

With a certificate, a colleague, a reviewer or an auditor can repeat the proof with a
checker that shares no bounds with the search. The file holds the claim and one byte for
each part of the search; what it says is never believed, only used as advice.
"""

# %%
# Solve and certify
# -----------------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import ennopt
from ennopt.learn import PEAKS, Configuration, sample, train

table = sample(PEAKS, count=600)
model = train(table, Configuration(members=3, layers=2, width=20), seed=0).ensemble
proof = Path(tempfile.mkdtemp()) / "peaks.cert"
answer = ennopt.minimize(model, PEAKS.domain, certificate=proof)
print(f"value {answer.value:.6f}, bound {answer.bound:.6f}, {answer.nodes} nodes")
print(f"the certificate has {proof.stat().st_size} bytes")

# %%
# Check it
# --------
verdict = ennopt.verify(proof, model)
print(verdict.verified, verdict.reason)

# %%
# A network that was changed afterwards
# -------------------------------------
# One weight moves by a millionth: the certificate is of another model, and the checker
# says so.
first, *others = model.members
weights = [np.array(w) for w in first.weights]
weights[0][0, 0] += 1e-6
changed = ennopt.Network(weights, first.biases)
forged = ennopt.Ensemble([changed, *others], model.weights)
refusal = ennopt.verify(proof, forged)
print(refusal.verified, refusal.reason)

# %%
# What is proved
# --------------
# No point of the surface lies below the plane at the bound.
axis = np.linspace(-3, 3, 120)
grid = np.stack(np.meshgrid(axis, axis), axis=-1)
surface = model(grid.reshape(-1, 2)).reshape(120, 120)
figure = plt.figure(figsize=(7, 5), layout="constrained")
axes = figure.add_subplot(projection="3d")
axes.plot_surface(grid[..., 0], grid[..., 1], surface, cmap="viridis", alpha=0.9)
axes.plot_surface(
    grid[..., 0],
    grid[..., 1],
    np.full((120, 120), answer.bound),
    color="tab:red",
    alpha=0.2,
)
axes.plot(*answer.x, answer.value, "r*", ms=12)
axes.set(xlabel="x1", ylabel="x2", zlabel="prediction")
