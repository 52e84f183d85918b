"""
What would make this wine better?
=================================

The 1,599 red wines of Cortez et al. (2009), with eleven measured properties and a
quality score. We take one ordinary wine and ask how far three properties that a cellar
can change (acid, sulphur dioxide, alcohol) would carry it while all others stay what
they are.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import ennopt
from ennopt.learn import Configuration, train, wine

wines = wine()
trained = train(wines, Configuration(members=5, layers=2, width=20), seed=0)
model = trained.ensemble
print(wines.input_names)
print(f"off by {trained.rmse_in_units:.2f} points on wines that it has not seen")

# %%
# One wine
# --------
number = int(np.flatnonzero(wines.y == 5)[0])
properties = dict(zip(wines.input_names, wines.x[number], strict=True))
free = ["volatile_acidity", "total_sulfur_dioxide", "alcohol"]
fixed = {name: value for name, value in properties.items() if name not in free}
answer = ennopt.maximize(model, wines.x, target=wines.y, fixed=fixed)
print(f"now {float(model(wines.x[number])[0]):.2f}, measured {wines.y[number]:.0f}")
for name in free:
    print(f"{name:<22}{properties[name]:8.2f} -> {answer.inputs[name]:8.2f}")
print(
    f"predicted {answer.value:.2f}; no choice of the three reaches {answer.bound:.3f}"
)

# %%
# How sure are the five networks?
# -------------------------------
# Along the way from the wine as it is to the answer.
steps = np.linspace(0, 1, 60)
path = wines.x[number] + steps[:, None] * (answer.x - wines.x[number])
members = np.stack([member(path)[:, 0] for member in model.members])
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(100 * steps, members.T, color="tab:gray", lw=1)
axes.plot(100 * steps, model(path)[:, 0], color="tab:red", lw=2, label="ensemble")
axes.set(xlabel="% of the change made", ylabel="predicted quality")
axes.legend()
