"""
Auditing a black box
====================

What can be proved against a mechanism by only asking it.

Three programs claim ε = 8 per km for places in Helsinki, and an audit sees nothing but their answers. It looks for
two places and a set of reports that tell them apart, then asks afresh, and bounds the true ε from below with a
confidence of 99.9 %. A bound above the claim refutes it. The spline, whose privacy is proved, stays below. The second
program forgot to halve ε in the exponential mechanism, so that its true ε is up to twice the claim. The third is
private only between the centres of a grid's cells. Two places on the two sides of a border give it away, and the
closer they are, the larger is the bound: no ε is large enough for it.
"""

import sys
from functools import partial
from pathlib import Path

from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

claimed = 8.0  # per km
problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
claim = {"epsilon": claimed, "p": 2, "bounds": problem.bounds, "n_outputs": problem.n_outputs}
programs = {
    "spline, certified": mdp.fit(problem, claimed, "spline", cells=12),
    "exponential, ½ forgotten": mdp.fit(problem, 2 * claimed, "em"),
    "best on a grid of cells": mdp.fit(problem, claimed, "lp", cells=6, certify=False),
}
answers = [10_000, 30_000, 100_000, 300_000, 1_000_000]

figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
looks = zip(("#0072b2", "#009e73", "#d55e00"), "osD", strict=True)
for (name, mechanism), (colour, marker) in zip(programs.items(), looks, strict=True):
    black_box = partial(mechanism.sample, rng=mdp.InsecureSeed(0))  # points in, numbers of reports out; repeatable
    found = [mdp.audit_samples(black_box, samples=samples, **claim) for samples in answers]
    for one in found:
        metres, verdict = 1000 * one.worst_pair["distance"], "refuted" if one.violates else "not refuted"
        print(f"{name}: {one.samples} answers, places {metres:.3g} m apart, ε ≥ {one.epsilon_lower:.4g}: {verdict}")
    axis.plot(answers, [one.epsilon_lower for one in found], marker=marker, color=colour, label=name)
axis.axhline(claimed, color="black", linestyle="--", label="claimed; a bound above refutes it")
axis.set(xscale="log", yscale="log", xlabel="answers that the audit asks for", ylabel="bound: ε is at least, per km")
axis.grid(color="0.9")
axis.legend()
figure.savefig(folder / "auditing_black_box.png", dpi=100)
