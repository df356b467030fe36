"""
Why grids leak
==============

A mechanism that is private on a grid is not private between its points.

Somebody walks north through Helsinki. Each line is the probability of one report on the way, dark for places in the
south and light for places in the north. The best mechanism on a grid treats all places of a cell alike and is private
between the centres of cells: all that may change from centre to centre then changes at one step, where one crosses
the border (top). The bottom shows by what factor probabilities change over five metres. At borders that is far more
than ε allows, so that reports give away on which side one is. The spline (middle) stays within it everywhere.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

epsilon, step = 8, 5  # per km, and metres
problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
mechanisms = {
    "grid": mdp.fit(problem, epsilon, "lp", cells=(5, 8), certify=False),
    "spline": mdp.fit(problem, epsilon, "spline", cells=12),
}
walk = np.arange(1000 * problem.bounds[0, 1], 1000 * problem.bounds[1, 1], step)
places = np.column_stack([np.full(len(walk), 0.2), walk / 1000])  # 200 m east of the middle
allowed = np.exp(epsilon * step / 1000)

figure, axes = plt.subplots(3, 1, figsize=(8, 7.2), sharex=True, layout="constrained")
titles = "best mechanism on a grid: jumps at the borders of cells", "spline: no jumps"
looks = {"grid": {"color": "#d55e00"}, "spline": {"color": "#56b4e9", "linewidth": 3}}
northing = problem.outputs[:, 1].argsort().argsort() / problem.n_outputs
for axis, title, (name, mechanism) in zip(axes[:2], titles, mechanisms.items(), strict=True):
    rows = mechanism.probabilities(places)
    factors = np.exp(np.abs(np.diff(np.log(rows), axis=0)).max(axis=1))
    print(f"{name}: expected error {1000 * mechanism.expected_loss(problem):.0f} m,", end=" ")
    print(f"factor {factors.max():.3f} within {step} m, private: {mdp.certify(mechanism).holds}")
    axis.set_prop_cycle(color=plt.get_cmap("viridis")(0.95 * northing))
    axis.plot(walk, rows, linewidth=1.3)
    axis.set(title=title, ylabel="probability of\neach report", ylim=(0, 1))
    axes[2].plot(walk[1:] - step / 2, factors, label=name, **looks[name])
print(f"allowed: factor {allowed:.3f}")
axes[2].axhline(allowed, color="black", linestyle="--", linewidth=1, label=f"allowed: {allowed:.2f}")
axes[2].set(yscale="log", ylabel=f"largest factor\nover {step} m", xlabel="metres north", ylim=(0.9, 12))
axes[2].set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
axes[2].minorticks_off()
axes[2].legend(loc="upper center", ncols=3)
figure.savefig(folder / "why_grids_leak.png", dpi=100)
