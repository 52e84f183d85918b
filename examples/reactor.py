"""
From a CSV file to settings of a reactor
========================================

``reactor.csv`` holds 300 made-up runs of a chemical reactor: four settings and the
yield. An ensemble learns the yield; ennopt finds the settings at which the ensemble
predicts the most, within the ranges that were measured, and proves it.
"""

# %%
# Train
# -----
# The trained ensemble takes and predicts original units, and remembers the range of the
# data.
import ennopt
from ennopt.learn import Configuration, read_csv, train

table = read_csv("reactor.csv", target="yield (%)")
trained = train(table, Configuration(members=3, layers=2, width=12), seed=0)
print(f"test error {trained.rmse_in_units:.2f} (root mean square, in %)")

# %%
# Optimize
# --------
answer = ennopt.maximize(trained.ensemble, table.x, target=table.y)
print(answer)

# %%
# Look at it
# ----------
# How the prediction changes when one setting moves and the others stay. Thin lines are
# the three members: where they part, the ensemble knows little.
answer.plot("slices")

# %%
# How value and bound met, and what each member predicts.
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
answer.plot("convergence", axes=left)
answer.plot("members", axes=right)
