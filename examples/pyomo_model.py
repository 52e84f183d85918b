"""
A network inside a Pyomo model
==============================

Three batches share a stock of catalyst. How much each batch makes is what an ensemble
predicts from its temperature and its share. The plan has costs and a stock besides, so
it is a model of its own, and the ensemble becomes a part of it.
"""

# %%
# The predictor
# -------------
import matplotlib.pyplot as plt
import numpy as np
import pyomo.environ as pyo

from ennopt.embed import add_predictor_constr
from ennopt.learn import Configuration, Table, train

rng = np.random.default_rng(0)
x = rng.uniform([20, 0], [80, 4], size=(400, 2))
y = 10 * np.sqrt(x[:, 1]) * np.exp(-(((x[:, 0] - 55) / 25) ** 2))
table = Table(x, y, ("temperature", "catalyst"), "output")
plant = train(table, Configuration(members=2, layers=1, width=10), seed=0).ensemble

# %%
# The plan
# --------
plan = pyo.ConcreteModel()
plan.batches = pyo.Set(initialize=["early", "noon", "late"])
plan.temperature = pyo.Var(plan.batches, bounds=(20, 80))
plan.catalyst = pyo.Var(plan.batches, bounds=(0, 4))
plan.stock = pyo.Constraint(expr=sum(plan.catalyst[b] for b in plan.batches) <= 5)
plan.cooling = pyo.Constraint(expr=plan.temperature["late"] <= 40)

rows = [[plan.temperature[b], plan.catalyst[b]] for b in plan.batches]
predicted = add_predictor_constr(plan, plant, rows, name="plant")
made = sum(predicted.output[:, 0])
heat = sum(plan.temperature[b] for b in plan.batches)
plan.profit = pyo.Objective(expr=made - 0.02 * heat, sense=pyo.maximize)
predicted.print_stats()

# %%
# Solve it with HiGHS
# -------------------
# The solver proves the optimum of the whole plan. `get_error` compares its values with
# what the predictor itself says.
pyo.SolverFactory("appsi_highs").solve(plan)
print(f"profit {pyo.value(plan.profit):.3f}")
for name, inputs, output in zip(
    plan.batches, predicted.input_values, predicted.output_values, strict=True
):
    print(
        f"{name:<6} {inputs[0]:6.2f} degrees, catalyst {inputs[1]:.2f}: {output[0]:.2f}"
    )
print("largest error", predicted.get_error().max())

# %%
# What the ensemble has learned, and where the batches are
# --------------------------------------------------------
first, second = np.linspace(20, 80, 80), np.linspace(0, 4, 80)
grid = np.stack(np.meshgrid(first, second), axis=-1)
surface = plant(grid.reshape(-1, 2)).reshape(80, 80)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
filled = axes.contourf(first, second, surface, levels=20)
figure.colorbar(filled, label="predicted output")
for name, inputs in zip(plan.batches, predicted.input_values, strict=True):
    axes.plot(*inputs, "r*", ms=13, mec="white")
    axes.annotate(f" {name}", inputs, color="white")
axes.set(xlabel="temperature", ylabel="catalyst")
