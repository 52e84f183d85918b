"""
Trust regions: how close to the data?
=====================================

The same question with five ideas of where a model may be believed. Two inputs, so that
the regions can be drawn: the data lie along a bent band, and the ensemble rises without
end beyond it.
"""

# %%
# Data along a band
# -----------------
import matplotlib.pyplot as plt
import numpy as np

import ennopt
from ennopt.learn import Configuration, Table, train

rng = np.random.default_rng(1)
along = rng.uniform(0, 1, 250)
x = np.stack([along, along**2 + 0.06 * rng.normal(size=250)], axis=1)
y = 2 * x[:, 0] - (x[:, 1] - 0.6) ** 2 + 0.03 * rng.normal(size=250)
table = Table(x, y, ("temperature", "pressure"), "yield")
model = train(table, Configuration(members=5, layers=1, width=20), seed=0).ensemble

# %%
# The best input of each region
# -----------------------------
# The box allows more than the data have shown, as users often do.
box = {"temperature": (-0.2, 1.5), "pressure": (-0.3, 1.6)}
regions = {
    "none": None,
    "range of the data": "box",
    "ellipsoid (Mahalanobis)": "mahalanobis",
    "convex hull": "hull",
    "near a row": ennopt.Near(radius=0.3),
}
answers = {
    name: ennopt.maximize(model, box, data=x, target=y, trust=trust)
    for name, trust in regions.items()
}
for name, answer in answers.items():
    spread = np.ptp(answer.member_values)
    print(f"{name:<25}{answer.value:7.3f}, members within {spread:.3f}")

# %%
# What each region allows
# -----------------------
# Dark points are allowed, the star is the best of them. The smaller the region, the
# less the members of the ensemble disagree about the answer.
grid = np.stack(
    np.meshgrid(np.linspace(-0.2, 1.5, 80), np.linspace(-0.3, 1.6, 80)), axis=-1
).reshape(-1, 2)
figure, panels = plt.subplots(
    1, 5, figsize=(14, 3.2), sharex=True, sharey=True, layout="constrained"
)
for panel, (name, answer) in zip(panels, answers.items(), strict=True):
    allowed = answer.asked.problem.domain.feasible(grid)
    panel.plot(*grid[allowed].T, "s", ms=2, color="tab:blue", alpha=0.25)
    panel.plot(*x.T, ".", ms=2, color="black")
    panel.plot(*answer.x, "r*", ms=12, mec="white")
    panel.set(title=f"{name}: {answer.value:.2f}", xlabel="temperature")
panels[0].set_ylabel("pressure")
