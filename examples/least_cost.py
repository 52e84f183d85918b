"""The cheapest concrete that every network of an ensemble believes to reach 50 MPa.

A cubic metre of 2,400 kg, whole days of age, four weeks at most, close to mixes that
were made. The prices are made up. `docs/decisions.md` tells how limits and risks work.
"""

import ennopt
from ennopt.learn import Configuration, train
from ennopt.learn.datasets import concrete

PRICES = {  # for a kilogram
    "cement": 0.11,
    "blast_furnace_slag": 0.06,
    "fly_ash": 0.03,
    "water": 0.001,
    "superplasticizer": 2.0,
    "coarse_aggregate": 0.012,
    "fine_aggregate": 0.01,
}


def main() -> ennopt.Result:
    """Print the answer and return it."""
    mixes = concrete()
    model = train(mixes, Configuration(members=5, layers=2, width=20), seed=0).ensemble
    strength = ennopt.Prediction(model, risk="worst", name="strength")
    answer = ennopt.minimize(
        ennopt.linear(PRICES),
        mixes.x,
        limits=[strength >= 50],
        constraints=[" + ".join(PRICES) + " == 2400", "age <= 28"],
        integers=["age"],
        trust="near",
    )
    print(answer)
    return answer


if __name__ == "__main__":
    main()
