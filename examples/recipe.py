"""
Categories: the best recipe of a scikit-learn pipeline
======================================================

Columns are scaled, logarithms taken and categories one-hot encoded by a
``ColumnTransformer``. ennopt takes the pipeline as it is and answers in its columns.
"""

# %%
# Made-up recipes, and the strength that they reached
# ---------------------------------------------------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import ennopt

rng, count = np.random.default_rng(0), 400
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

# %%
# A network behind an encoder of the columns
# ------------------------------------------
columns = make_column_transformer(
    (StandardScaler(), ["cement", "ash"]),
    (make_pipeline(FunctionTransformer(np.log), StandardScaler()), ["dose"]),
    (OneHotEncoder(drop="first"), ["grade", "additive"]),
)
network = MLPRegressor(
    hidden_layer_sizes=(8,), solver="lbfgs", alpha=10, max_iter=2000, random_state=0
)
model = make_pipeline(columns, network).fit(table, strength)

# %%
# The best recipe within a budget
# -------------------------------
# The best cement is sold out, so its grade is left out of the list.
answer = ennopt.maximize(
    model,
    {"grade": ["32.5", "42.5"]},
    data=table,
    target=strength,
    constraints="cement + 2*ash <= 520",
)
print(answer)
print("The pipeline itself predicts", model.predict(pd.DataFrame([answer.inputs])))

# %%
# Every choice by itself
# ----------------------
# One search covers all choices of levels. To see what it decided, fix each in turn.
best = {}
for grade in ("32.5", "42.5"):
    for additive in ("none", "retarder", "silica"):
        best[f"{grade}, {additive}"] = ennopt.maximize(
            model,
            data=table,
            fixed={"grade": grade, "additive": additive},
            constraints="cement + 2*ash <= 520",
        ).value
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.barh(list(best), list(best.values()), color="tab:gray")
axes.axvline(answer.value, color="tab:red", label="answer over all choices")
axes.set(xlabel="best predicted strength", xlim=(0.8 * min(best.values()), None))
axes.legend(loc="lower right")
