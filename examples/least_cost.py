"""
The cheapest concrete that every network believes to reach 50 MPa
=================================================================

The objective is a cost; the prediction is a limit. A cubic metre of 2,400 kg, whole
days of age, four weeks at most, close to mixes that were made. The prices are made up.
"""

# %%
import matplotlib.pyplot as plt

import ennopt
from ennopt.learn import Configuration, concrete, train

PRICES = {  # for a kilogram
    "cement": 0.11,
    "blast_furnace_slag": 0.06,
    "fly_ash": 0.03,
    "water": 0.001,
    "superplasticizer": 2.0,
    "coarse_aggregate": 0.012,
    "fine_aggregate": 0.01,
}
mixes = concrete()
model = train(mixes, Configuration(members=5, layers=2, width=20), seed=0).ensemble

# %%
# The limit holds for the worst member, so for every one of the five networks.
strength = ennopt.Prediction(model, risk="worst", name="strength")
answer = ennopt.minimize(
    ennopt.linear(PRICES).named("cost"),
    mixes.x,
    limits=[strength >= 50],
    constraints=[" + ".join(PRICES) + " == 2400", "age <= 28"],
    integers=["age"],
    trust="near",
)
print(answer)

# %%
# What the mix is made of, and what it costs
# ------------------------------------------
kilograms = [answer.inputs[name] for name in PRICES]
costs = [PRICES[name] * mass for name, mass in zip(PRICES, kilograms, strict=True)]
labels = [name.replace("_", " ") for name in PRICES]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.5), sharey=True, layout="constrained"
)
left.barh(labels, kilograms, color="tab:gray")
left.set_xlabel("kg in a cubic metre")
right.barh(labels, costs, color="tab:orange")
right.set_xlabel(f"cost, {answer.value:.2f} in all")
left.invert_yaxis()
