"""
Positions in space
==================

Drones above the streets of Helsinki.

Drones fly 20 to 120 m above the streets, and each reports one of 24 points in the air. The star is one of them; a dot
is the larger and brighter the likelier its point is to be reported. Distance is measured in space, and ε = 8 per km:
drones one above the other are at most 100 m apart, so that no report is more than e^{0.8} ≈ 2.2 times likelier from
one than from the other. This mechanism does not even use that: what is printed for the star's place shows that its
reports tell next to nothing about height, because it is the part of town that decides which point is near.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from mpl_toolkits.mplot3d.art3d import Line3DCollection

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

epsilon = 8  # per km
city = mdp.cities.load("helsinki")
rng = np.random.default_rng(0)
drones = np.column_stack([city.xy, rng.uniform(0.02, 0.12, city.n_nodes)])
points = drones[rng.choice(len(drones), 24, replace=False)]
problem = mdp.Problem(drones, points, "euclidean")
for method, options in (("em", {}), ("spline", {"cells": (6, 9, 2)})):
    mechanism = mdp.fit(problem, epsilon, method, **options)
    print(f"{method}: mean distance from drone to report {1000 * mechanism.expected_loss(problem):.0f} m")
print(f"nearest: mean distance without privacy {1000 * problem.floor:.0f} m")
print(mdp.certify(mechanism).claim)

drone = drones[np.linalg.norm(drones - [0.1, -0.4, 0.1], axis=1).argmin()]
low, high = np.where([False, False, True], problem.bounds, drone)
row, below, above = mechanism.probabilities([drone, low, high])
print(f"lowest to highest: factor {np.exp(np.abs(np.log(below / above)).max()):.3f}")
print(f"allowed: factor {np.exp(epsilon * (high - low)[2]):.3f}")

figure = plt.figure(figsize=(8, 4.6), layout="constrained")
axes = figure.add_subplot(projection="3d", computed_zorder=False)
ground = np.append(1000 * np.stack([city.xy[city.u], city.xy[city.v]], axis=1), np.zeros((city.n_edges, 2, 1)), axis=2)
axes.add_collection3d(Line3DCollection(ground, colors="0.75", linewidths=0.7))
ends = np.stack([points * [1, 1, 0], points], axis=1)
axes.add_collection3d(Line3DCollection(1000 * ends, colors="0.4", linewidths=0.7, linestyles=":"))
look = {"c": row, "s": 25 + 900 * row, "vmin": 0, "edgecolors": "black", "linewidths": 0.5, "depthshade": False}
dots = axes.scatter(*(1000 * points.T), **look, zorder=3)
axes.plot(*(1000 * drone[:, None]), marker="*", markersize=18, color="#d55e00", markeredgecolor="white", zorder=5)
axes.plot(*(1000 * np.array([drone * [1, 1, 0], drone]).T), color="#d55e00", zorder=4)
axes.set(xlabel="metres east", zlabel="metres up", xticks=[-400, 0, 400], zticks=[0, 40, 80, 120])
axes.set_ylabel("metres north", labelpad=14)
axes.set_box_aspect((1, 1.6, 0.5), zoom=1.2)
axes.view_init(elev=28, azim=-60)
figure.colorbar(dots, label="probability of the report", shrink=0.6)
figure.savefig(folder / "positions_3d.png", dpi=100)
