"""
A guarantee that varies over the map
====================================

A protection radius for each place, instead of one for all.

On the left, central Helsinki with ε by density: everybody is hidden among 50 crossings and bends of roads, within 125 m
where there are many and within up to 500 m in the park. To promise 500 m to those in the park, a mechanism with one ε
must promise it to everybody; on the right, what that costs. At the same loss, one ε protects those in the crowd
farther than the map, who are hidden among 50 anyway, and those in emptier places less far, who need it.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
local = mdp.EpsilonMap.by_density(problem, people=50, least=2, most=8, cells=[8, 13])
elastic = mdp.fit(problem, local, "spline", cells=[8, 13])
certificate = mdp.certify(elastic)
print("proved:", certificate.holds)

park, town = [-0.4, 0.5], [0.2, -0.6]
near, far = (1000 * certificate.radius(place) for place in (town, park))
print(f"e times within {far:.0f} m in the park, {near:.0f} m in town")
print(f"between the two: at most e^{certificate.between(park, town):.2f} times")
logs = np.log(elastic.probabilities([park, town]))
print(f"what reports give away: up to e^{np.abs(logs[0] - logs[1]).max():.2f} times")

epsilons = np.array([2, 3, 4, 5.5, 8])
losses = np.array([mdp.fit(problem, one, "spline", cells=[8, 13]).report["loss"] for one in epsilons])
loss = elastic.report["loss"]
same = np.exp(np.interp(-loss, -losses, np.log(epsilons)))  # the ε at which one for all loses as much
print(f"map: loss {1000 * loss:.0f} m; one ε of 2, which keeps the same promise: {1000 * losses[0]:.0f} m")
print(f"at the same loss: one ε of {same:.2f}, {1000 / same:.0f} m for everybody")
print(f"people whom the map protects farther: {100 * problem.prior[local.at(problem.records) < same].sum():.0f} %")

figure, (ground, costs) = plt.subplots(1, 2, figsize=(8, 5), layout="constrained", width_ratios=[1, 1.1])
radii = 1000 / elastic.epsilon_map.values.T
shown = ground.pcolormesh(*elastic.epsilon_map.breakpoints, radii, cmap="Blues", norm="log", vmin=100, vmax=520)
bar = figure.colorbar(shown, ax=ground, label="protection radius 1/ε, m")
bar.set_ticks([125, 180, 250, 350, 500], labels=["125", "180", "250", "350", "500"])
bar.minorticks_off()
ground.plot(*problem.records.T, ".", color="0.45", markersize=1.2)
ground.plot(*problem.outputs.T, "o", color="#e8730c", markersize=4)
for name, place in (("park", park), ("town", town)):
    words = f"{name}\n{1000 * certificate.radius(place):.0f} m"
    ground.annotate(words, place, ha="center", va="center", fontsize=9, bbox={"color": "white", "alpha": 0.8})
ground.set(aspect="equal", xticks=[], yticks=[], title="one radius for each place")
costs.plot(1000 / epsilons, 1000 * losses, "o-", color="#0072b2", label="one ε for all")
costs.axhline(1000 * loss, color="#d55e00", label="the map")
costs.plot([125, 500], [1000 * loss] * 2, "|-", color="#d55e00", linewidth=4, markersize=14, solid_capstyle="butt")
saved = f"{100 * (1 - loss / losses[0]):.0f} % less loss\nat the same promise"
costs.annotate("", (500, 1000 * loss), (500, 1000 * losses[0]), arrowprops={"arrowstyle": "<->", "color": "0.3"})
costs.annotate(saved, (485, 1000 * loss + 4), ha="right", va="bottom", fontsize=9)
costs.annotate("same loss", (1000 / same, 1000 * loss), (-6, 8), textcoords="offset points", ha="right", fontsize=9)
costs.set(xlabel="protection radius 1/ε, m (smallest to largest)", ylabel="expected error of travel distances, m")
costs.set(xscale="log", title="what it costs")
costs.set_xticks([125, 180, 250, 350, 500], ["125", "180", "250", "350", "500"])
costs.minorticks_off()
costs.grid(color="0.92")
costs.legend(loc="upper left")
figure.savefig(folder / "elastic.png", dpi=100)
