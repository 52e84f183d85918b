"""
An ensemble of PyTorch networks
===============================

A list of torch modules is an ensemble. ennopt reads each module once, compares its own
forward pass with the module's, and asks the modules again at the answer.
"""

# %%
# Five small modules, each on its own sample
# ------------------------------------------
import matplotlib.pyplot as plt
import numpy as np
import torch

import ennopt

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.rand(400, 3) * 2 - 1
y = torch.exp(-((x - torch.tensor([0.3, -0.2, 0.5])) ** 2).sum(1, keepdim=True))


def trained() -> torch.nn.Module:
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 24),
        torch.nn.LeakyReLU(0.1),
        torch.nn.Linear(24, 24),
        torch.nn.ReLU(),
        torch.nn.Linear(24, 1),
    )
    rows = torch.randint(len(x), (len(x),))
    steps = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(300):
        steps.zero_grad()
        loss = torch.mean((net(x[rows]) - y[rows]) ** 2)
        loss.backward()
        steps.step()
    return net.eval()


nets = [trained() for _ in range(5)]

# %%
# The best input
# --------------
answer = ennopt.maximize(nets, (-1, 1))
print(answer)

# %%
# In float32, as torch computes
# -----------------------------
# The proof is for the weights as they are, in real numbers. What the modules compute in
# float32 differs by rounding only; `deviation` says by how much.
with torch.no_grad():
    point = torch.tensor(answer.x, dtype=torch.float32)
    predictions = np.array([float(net(point)) for net in nets])
print("torch's mean", predictions.mean(), "deviation", answer.deviation)
answer.plot("slices")
plt.gcf().suptitle("The prediction along each input, through the optimum")
