"""
The strongest concrete: a naive answer, and one that can be mixed
=================================================================

The data are the 1,030 mixes of Yeh (1998), which the extra ``datasets`` brings. Both
answers are proved optimal for the model; only the second is close to mixes that were
made.
"""

# %%
# A model of strength
# -------------------
import matplotlib.pyplot as plt
import numpy as np

import ennopt
from ennopt.learn import Configuration, concrete, train

mixes = concrete()
model = train(mixes, Configuration(members=5, layers=1, width=20), seed=0).ensemble

# %%
# The naive answer
# ----------------
# Within the range of each column. It predicts more than twice the strongest mix ever
# measured, from a cubic metre that weighs far too much. The warning says why not to
# believe it.
naive = ennopt.maximize(model, mixes.x, target=mixes.y)
print(naive)

# %%
# With what we know
# -----------------
# A cubic metre weighs 2,400 kg, the age is a whole number of days, and the answer must
# be close to three mixes that were made.
masses = mixes.input_names[:7]
careful = ennopt.maximize(
    model,
    mixes.x,
    target=mixes.y,
    constraints=" + ".join(masses) + " == 2400",
    integers=["age"],
    trust=ennopt.Near(radius=0.25, count=3),
)
print(careful)
for row in careful.extrapolation.nearest:
    print(f"mix {row}, close by, reached {mixes.y[row]:.1f} MPa")

# %%
# Where the answers lie
# ---------------------
# Measured mixes, by their weight and strength, and the two answers.
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(mixes.x[:, :7].sum(axis=1), mixes.y, ".", ms=4, alpha=0.4, label="measured")
for answer, label, mark in ((naive, "naive", "rX"), (careful, "careful", "g*")):
    axes.plot(np.sum(answer.x[:7]), answer.value, mark, ms=12, label=label)
axes.set(xlabel="weight of a cubic metre (kg)", ylabel="strength (MPa)")
axes.legend()
