"""
A first mechanism
=================

Design it for a city, prove it private, see where its reports go.

The maps show the streets of central Helsinki and the 20 places that may be reported. The star is where somebody
really is; a dot is the larger and brighter the likelier its place is to be reported. The two stars are not quite 1/ε
= 125 m apart, and so the two maps cannot differ much: no report is more than e^{ε d} times likelier from one of two
places than from the other, where d is the distance between them. For these two that is about e; it is proved for
every two places in the box around the streets.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

epsilon = 8  # per km
city = mdp.cities.load("helsinki")
problem = city.problem(outputs=20, tasks=50, seed=0)
mechanism = mdp.fit(problem, epsilon, time_limit=5)
print(mdp.certify(mechanism).claim)
loss, floor = mechanism.expected_loss(problem), problem.floor
print(f"expected error of travel distances: {1000 * loss:.0f} m, without privacy {1000 * floor:.0f} m")

here = problem.records[np.linalg.norm(problem.records - [-0.1, -0.45], axis=1).argmin()]
distance = np.linalg.norm(problem.records - here, axis=1)
there = problem.records[np.where(distance <= 1 / epsilon, distance, 0).argmax()]
apart = np.linalg.norm(there - here)
rows = mechanism.probabilities([here, there])
print("ten reports from one place:", mechanism.sample([here] * 10).tolist())
print(f"two places {1000 * apart:.0f} m apart: factor {np.exp(np.abs(np.log(rows[0] / rows[1])).max()):.3f}")
print(f"allowed: factor {np.exp(epsilon * apart):.3f}")

streets = 1000 * np.stack([city.xy[city.u], city.xy[city.v]], axis=1)
figure, axes = plt.subplots(1, 2, figsize=(8, 5.5), sharey=True, layout="constrained")
titles = "reports from one place …", f"… and from a place {1000 * apart:.0f} m away"
for axis, point, row, title in zip(axes, (here, there), rows, titles, strict=True):
    axis.add_collection(LineCollection(streets, colors="0.8", linewidths=0.8))
    look = {"c": row, "s": 25 + 900 * row, "vmin": 0, "vmax": rows.max(), "edgecolors": "black", "linewidths": 0.5}
    dots = axis.scatter(*(1000 * mechanism.outputs.T), **look, zorder=2)
    axis.plot(*(1000 * point), marker="*", markersize=18, color="#d55e00", markeredgecolor="white", zorder=3)
    axis.set(title=title, xlabel="metres east", aspect="equal", xticks=[-400, -200, 0, 200, 400])
axes[0].set_ylabel("metres north")
figure.colorbar(dots, ax=axes, label="probability of the report", shrink=0.8)
figure.savefig(folder / "first_mechanism.png", dpi=100)
