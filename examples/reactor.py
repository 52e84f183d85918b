"""From a CSV file of measurements to settings with a proved best prediction.

``reactor.csv`` holds 300 made-up runs of a chemical reactor: four settings and the
yield. An ensemble learns the yield; ennopt finds the settings at which the ensemble
predicts the most, within the ranges that were measured, and proves it.
"""

from pathlib import Path

import numpy as np

import ennopt
from ennopt.learn import Configuration, read_csv, train

DATA = Path(__file__).with_name("reactor.csv")


def main() -> ennopt.Result:
    """Train, solve, and print the answer in original units."""
    table = read_csv(DATA, target="yield (%)")
    trained = train(table, Configuration(members=3, layers=2, width=12), seed=0)
    print(f"test error  {trained.rmse_in_units:.2f} (root mean square, in %)")

    answer = ennopt.maximize(trained.ensemble, time_limit=120)
    print(f"best predicted {table.target}: {answer.value:.2f}")
    print(f"proved: no settings in range predict more than {answer.bound:.2f}")
    for name, setting in answer.by_name.items():
        print(f"  {name:<18}{setting:8.2f}")

    # The answer is a prediction: how far from the measured runs is it?
    scaled = trained.scaling.inputs(table.x)
    distances = np.linalg.norm(scaled - trained.scaling.inputs(answer.x), axis=1)
    nearest = int(np.argmin(distances))
    print(f"nearest run measured {table.y[nearest]:.2f}, at a distance of")
    print(f"  {distances[nearest]:.2f} with every range scaled to 1")
    return answer


if __name__ == "__main__":
    main()
