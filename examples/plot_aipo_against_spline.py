"""
AIPO against splines
====================

Both are private everywhere, but one makes more of ε.

Both lay a grid of 8 × 8 cells over Helsinki. AIPO interpolates logarithms of probabilities between the corners of
cells and normalises afterwards, for which its proof sets half of ε aside. `certify` examines the mechanism at hand,
and then less needs to be set aside (triangles). The spline is made of polynomials that sum to 1 without normalising,
and may spend all of ε. Left: it has the least error at each of these ε, and comes closest to the bound that no
private mechanism can beat. Right: how much likelihoods change between random pairs of places, as a share of what is
allowed. Above 1 would be a violation; who stays far below is more private than asked, and pays for it.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
epsilons, shown = [2, 4, 8, 16], 8
options = {"aipo-e": {"cells": 8}, "aipo": {"cells": 8, "splits": 1, "scale": "certified"}, "spline": {"cells": 8}}
table = mdp.compare(problem, epsilons, list(options), options=options, clusters=150, pairs=5000)
print(table[["method", "epsilon", "loss", "lower_bound", "certified", "max_ratio"]].to_string(index=False))

looks = {
    "aipo-e": {"color": "#d55e00", "label": "AIPO, half of ε set aside"},
    "aipo": {"color": "#e69f00", "linestyle": "-.", "label": "AIPO, as little as the proof needs"},
    "spline": {"color": "#0072b2", "label": "spline"},
}
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4.8), layout="constrained")
for (method, look), marker in zip(looks.items(), "s^o", strict=True):
    rows = table[table["method"] == method]
    left.plot(rows["epsilon"], 1000 * rows["loss"], marker=marker, **look)
    ratios = table.ratios[method, shown]
    percent = 100 * np.array(ratios.counts) / sum(ratios.counts)  # the last bin is open and empty
    right.stairs(percent[:-1], np.array(ratios.edges) / shown, linewidth=1.5, **look)
left.plot(epsilons, 1000 * rows["lower_bound"], color="black", label="no private mechanism below")
left.axhline(1000 * problem.floor, color="0.4", linestyle="--", label="without privacy")
left.set(xscale="log", xlabel="ε per km", ylabel="expected error of travel distances, metres", ylim=(0, None))
left.set_xticks(epsilons, [str(epsilon) for epsilon in epsilons])
left.minorticks_off()
right.axvline(1, color="black", linestyle=":")
right.annotate("allowed", (1, percent.max()), (5, 0), textcoords="offset points", rotation=90)
right.set(xlim=(0, 1.1), xlabel=f"change, share of what ε = {shown} per km allows", ylabel="% of pairs and reports")
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure.savefig(folder / "aipo_against_spline.png", dpi=100)
