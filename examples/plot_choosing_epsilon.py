"""
Choosing ε in metres
====================

What a budget protects, and what it costs.

1/ε is a distance, the protection radius: of two places that are no further apart than that, no report is more than e
≈ 2.7 times likelier from one than from the other. Read the picture from below: choose the radius within which places
are to look alike, go up, and read off how far from the truth reports fall and how wrong travel distances become. The
dashed line is the error without privacy, which is not zero because only 40 places of central Helsinki can be
reported.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

problem = mdp.cities.load("helsinki").problem(outputs=40, tasks=50, seed=0, choose="medoids")
metres = 1000 * np.linalg.norm(problem.records[:, None] - problem.outputs, axis=2).ravel()
order = metres.argsort()

radii = np.array([25, 50, 100, 200, 400])
costs = []
print("protection radius | ε per km | 95 % of reports within | half within | expected error of travel distances")
for radius in radii:
    mechanism = mdp.fit(problem, 1000 / radius, "laplace-remap")  # "auto" tries this among others, and takes longer
    chances = problem.prior[:, None] * mechanism.probabilities(problem.records)
    within = metres[order][np.searchsorted(chances.ravel()[order].cumsum(), [0.95, 0.5])]
    costs.append([*within, 1000 * (chances * problem.loss).sum()])
    print("{:15} m | {:8g} | {:20.0f} m | {:9.0f} m | {:.0f} m".format(radius, 1000 / radius, *costs[-1]))

figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
lines = {
    "95 % of reports fall within": ("#d55e00", "o", 8),
    "half of the reports fall within": ("#0072b2", "s", 8),
    "expected error of travel distances": ("#009e73", "D", -17),
}
for (name, (colour, marker, shift)), line in zip(lines.items(), np.transpose(costs), strict=True):
    axis.plot(radii, line, marker=marker, color=colour, label=name)
    for place in zip(radii, line, strict=True):
        axis.annotate(f"{place[1]:.0f} m", place, (0, shift), textcoords="offset points", ha="center", color=colour)
axis.axhline(1000 * problem.floor, color="0.4", linestyle="--", label="expected error without privacy")
axis.set(xscale="log", yscale="log", xlabel="protection radius 1/ε", ylim=(30, 1400), xlim=(19, 530))
axis.set_xticks(radii, [f"{radius} m\nε = {1000 / radius:g} per km" for radius in radii])
axis.set_yticks([50, 100, 200, 500, 1000], ["50 m", "100 m", "200 m", "500 m", "1000 m"])
axis.minorticks_off()
axis.grid(color="0.9")
axis.legend(loc="upper left")
figure.savefig(folder / "choosing_epsilon.png", dpi=100)
