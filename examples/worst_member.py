"""
The mean of the networks, or the worst of them?
===============================================

The members of an ensemble agree where there were data and disagree elsewhere. The best
*mean* may lie where a few members dream. A risk makes the prediction pessimistic, with
the same proof.
"""

# %%
# Many measurements of small doses, five of large ones
# ----------------------------------------------------
import matplotlib.pyplot as plt
import numpy as np

import ennopt
from ennopt.learn import Configuration, Table, train

rng = np.random.default_rng(2)
dose = np.concatenate([rng.uniform(0, 5, 80), rng.uniform(7.8, 8.2, 5)])
effect = 0.8 * np.exp(-(((dose - 2) / 1.2) ** 2)) + np.exp(-((dose - 8) ** 2))
effect += 0.05 * rng.normal(size=len(dose))
table = Table(dose[:, None], effect, ("dose",), "effect")
shape = Configuration(members=7, layers=2, width=20, learning_rate=0.01)
model = train(table, shape, seed=2).ensemble

# %%
# Four ideas of the best dose
# ---------------------------
risks = {
    "mean": None,
    "mean - 1 std": ennopt.MeanMinusStd(1.0),
    "worst 40%": ennopt.Cvar(0.4),
    "worst member": "worst",
}
answers = {
    name: ennopt.maximize(model, {"dose": (0, 10)}, risk=risk)
    for name, risk in risks.items()
}
for name, answer in answers.items():
    spread = np.ptp(answer.member_values)
    told = f"dose {answer.x[0]:5.2f}, value {answer.value:6.3f}"
    print(f"{name:<14}{told}, members within {spread:.2f}")

# %%
# Thin lines are the seven networks, dots the measurements.
axis = np.linspace(0, 10, 400)
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
members = np.stack([member(axis[:, None])[:, 0] for member in model.members])
axes.plot(axis, members.T, color="tab:gray", lw=0.7)
axes.plot(axis, members.mean(axis=0), color="tab:blue", label="mean")
axes.plot(axis, members.min(axis=0), color="tab:red", label="worst member")
axes.plot(dose, effect, "k.", ms=4)
for (name, answer), mark in zip(answers.items(), "os^*", strict=True):
    axes.plot(answer.x[0], answer.value, mark, ms=10, label=f"best: {name}")
axes.set(xlabel="dose", ylabel="effect")
axes.legend(ncols=2, fontsize="small")
