"""The cheapest concrete that every network of an ensemble believes to reach 50 MPa.

A cubic metre of 2,400 kg, whole days of age, four weeks at most, close to mixes that
were made. The prices are made up. `docs/decisions.md` tells how limits and risks work.

    python examples/least_cost.py               # the cheapest mix of 50 MPa
    python examples/least_cost.py front.png     # and what each further MPa costs
"""

import sys
from pathlib import Path

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
COST = ennopt.linear(PRICES)


def asked():
    """The strength that every network believes in, and where mixes may be."""
    mixes = concrete()
    model = train(mixes, Configuration(members=5, layers=2, width=20), seed=0).ensemble
    strength = ennopt.Prediction(model, risk="worst", name="strength")
    where = {
        "domain": mixes.x,
        "constraints": [" + ".join(PRICES) + " == 2400", "age <= 28"],
        "integers": ["age"],
        "trust": "near",
    }
    return strength, where


def main() -> ennopt.Result:
    """Print the cheapest mix of 50 MPa and return it."""
    strength, where = asked()
    answer = ennopt.minimize(COST, **where, limits=[strength >= 50])
    print(answer)
    return answer


def front(picture: Path, points: int = 11) -> ennopt.Front:
    """Draw the front of cost and strength, print it and return it."""
    strength, where = asked()
    found = ennopt.pareto(
        (COST, strength), **where, senses=("min", "max"), points=points,
        names=("cost of a cubic metre", "strength in MPa, worst of 5 members"),
    )  # fmt: skip
    print(found)
    found.plot().figure.savefig(picture, dpi=120)
    return found


if __name__ == "__main__":
    main()
    if len(sys.argv) > 1:
        front(Path(sys.argv[1]))
