"""The best recipe of a scikit-learn pipeline that encodes its own categories.

Columns are scaled, logarithms taken and categories one-hot encoded by a
`ColumnTransformer`. ennopt takes the pipeline as it is and answers in its columns.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import ennopt

BUDGET = "cement + 2*ash <= 520"


def recipes(count: int = 400) -> tuple[pd.DataFrame, pd.Series]:
    """Made-up recipes, and the strength that they reached."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "cement": rng.uniform(150, 500, count),
            "ash": rng.uniform(0, 120, count),
            "grade": rng.choice(["32.5", "42.5", "52.5"], count),
            "additive": rng.choice(["none", "retarder", "silica"], count),
            "dose": np.exp(rng.uniform(0, 3, count)),
        }
    )
    effect = table["additive"].map({"none": 0, "retarder": -2, "silica": 6})
    strength = (
        0.08 * (table["cement"] + table["ash"]) * table["grade"].astype(float) / 42.5
        + effect * np.log(table["dose"])
        - 0.1 * table["dose"]
    )
    return table, strength


def fitted(table: pd.DataFrame, strength: pd.Series) -> Pipeline:
    """A network behind an encoder of the columns."""
    columns = make_column_transformer(
        (StandardScaler(), ["cement", "ash"]),
        (make_pipeline(FunctionTransformer(np.log), StandardScaler()), ["dose"]),
        (OneHotEncoder(drop="first"), ["grade", "additive"]),
    )
    network = MLPRegressor(
        hidden_layer_sizes=(12,), solver="lbfgs", alpha=1, max_iter=300, random_state=0
    )
    return make_pipeline(columns, network).fit(table, strength)


def main() -> tuple[Pipeline, ennopt.Result]:
    """Print the best recipe within a budget; return the model and the answer."""
    table, strength = recipes()
    model = fitted(table, strength)
    answer = ennopt.maximize(
        model,
        {"grade": ["32.5", "42.5"]},  # the best cement is sold out
        data=table,
        target=strength,
        constraints=BUDGET,
    )
    print(answer)
    print("The pipeline itself predicts", model.predict(pd.DataFrame([answer.inputs])))
    return model, answer


if __name__ == "__main__":
    main()
