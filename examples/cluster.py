"""
A search on a cluster
=====================

``executor=`` takes anything with the method ``submit`` of Python's
``concurrent.futures``. Here a Dask cluster of two workers runs on this machine; for a
real one, give ``Client`` the address of its scheduler.
"""

# %%
# An ensemble that takes some work
# --------------------------------
import matplotlib.pyplot as plt
from distributed import Client, LocalCluster

import ennopt
from ennopt.learn import Configuration, train, wine

wines = wine()
model = train(wines, Configuration(members=3, layers=2, width=12), seed=0).ensemble

# %%
# Parts of the search are sent to the workers
# -------------------------------------------
# What is under way counts as not yet proved, so the bound is true at every moment.
moments = []


def heard(moment: ennopt.Progress) -> None:
    moments.append((moment.seconds, moment.value, moment.bound))


cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
)
with cluster, Client(cluster) as client:
    answer = ennopt.maximize(
        model, wines.x, executor=client.get_executor(), callback=heard, time_limit=60
    )
print(answer)

# %%
# Value and bound meet
# --------------------
seconds, values, bounds = zip(*moments, strict=True)
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.step(seconds, bounds, where="post", label="bound: no wine can exceed this")
axes.step(seconds, values, where="post", label="value: the best wine found")
axes.set(xlabel="seconds", ylabel="predicted quality")
axes.legend()
