"""Why a mechanism that is private on a grid is not private: the optimal LP on cells, in one dimension."""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("agg")
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

rng = np.random.default_rng(0)
problem = mdp.Problem(rng.uniform(0, 10, 500), [1.0, 3.5, 6.0, 9.0], "euclidean", bounds=[[0.0], [10.0]])
grid_lp = mdp.fit(problem, 1.0, "lp", cells=10, certify=False)
spline = mdp.fit(problem, 1.0, "spline", cells=40)
for mechanism in (grid_lp, spline):
    found = mdp.certify(mechanism)
    print(f"{mechanism.method}: loss {mechanism.expected_loss(problem):.4f}, private: {found.holds}")

x = np.linspace(0, 10, 2001)[:, None]
figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
for axis, mechanism in zip(axes, (grid_lp, spline), strict=True):
    axis.plot(x, mechanism.probabilities(x))
    axis.set_ylabel("probability of each report")
    axis.set_title(f"{mechanism.method}: {'jumps at cell borders' if mechanism is grid_lp else 'no jumps, no leak'}")
axes[1].set_xlabel("true value")
figure.savefig(folder / "why_grids_leak.png")
