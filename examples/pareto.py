"""
What each further megapascal costs
==================================

Cost and strength of concrete pull in opposite directions. A front shows the best
trades between them, each proved, and the part of the plane that no mix can reach. The
limits are those of the cheapest mix: 2,400 kg, whole days of age, close to mixes that
were made, and a strength that every one of the networks believes in.
"""

# %%
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
model = train(mixes, Configuration(members=3, layers=1, width=20), seed=0).ensemble

# %%
strength = ennopt.Prediction(model, risk="worst", name="strength")
front = ennopt.pareto(
    (ennopt.linear(PRICES), strength),
    mixes.x,
    senses=("min", "max"),
    points=5,
    names=("cost of a cubic metre", "strength in MPa, worst of 3 members"),
    constraints=[" + ".join(PRICES) + " == 2400", "age <= 28"],
    integers=["age"],
    trust="near",
)
print(front)

# %%
# The front
# ---------
# No mix lies in the shaded part: that is proved.
axes = front.plot()
