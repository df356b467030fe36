"""
What masks give away
====================

Grid snapping, rounding of decimals and donut masks, before an adversary who asks again.

Four programs hide where somebody in central Helsinki is. The first rounds to three decimals of a degree, about 100 m;
the second snaps to a grid of 250 m; the third moves the point by 100 to 400 m in a random direction (a donut mask); the
fourth adds noise with a proof, ε = 4 per km. An adversary who knows the streets sees their reports and guesses. Of the
first three they know nothing and learn by asking. Rounding and snapping say the same thing every time: they give away a
cell, and two neighbours on the two sides of its border are told apart at once. A donut mask looks better after one
report, and ten reports from the same place give away its middle. Noise gives away more with every report, too, but no
more than ε allows, which a ledger can count. An audit that only asks refutes that any of the first three keeps ε = 4.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
claimed = 4.0  # per km
noise, seed = mdp.noise(claimed, bounds=problem.bounds, projection=problem.projection), mdp.InsecureSeed(0)
generator = np.random.default_rng(0)


def rounded(points):
    degrees = np.round(problem.projection.to_lonlat(points), 3)
    return problem.projection.to_xy_km(degrees[:, 0], degrees[:, 1])


def snapped(points):
    return np.round(points / 0.25) * 0.25


def donut(points):
    angle, radius = generator.uniform(0, 2 * np.pi, len(points)), generator.uniform(0.1, 0.4, len(points))
    return points + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])


def noisy(points):
    return np.asarray(noise.sample(points, seed))  # a seed makes the example repeatable, and is not private


programs = {
    "decimals rounded": (rounded, "#d55e00", "o"),
    "snapped to 250 m": (snapped, "#cc79a7", "s"),
    "donut of 100 to 400 m": (donut, "#e69f00", "D"),
    "noise, ε = 4": (noisy, "#0072b2", "^"),
}
reports = [1, 3, 10, 30]

figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
for name, (sampler, colour, marker) in programs.items():
    # Of noise the adversary knows the formula, which is public, and does the best that can be done.
    found = mdp.attack(noise if sampler is noisy else sampler, problem, reports, learn=400_000, draws=300)
    audit = mdp.audit_samples(sampler, epsilon=claimed, p=2, bounds=problem.bounds, samples=300_000)
    metres = [1000 * one.error for one in found.table[1:]]
    verdict = "refuted" if audit.violates else "not refuted"
    print(f"{name}: off by {metres[0]:.0f} m after one report, {metres[2]:.0f} m after ten; ε = {claimed:g} {verdict}")
    axis.plot(reports, metres, color=colour, marker=marker, label=f"{name}: ε = {claimed:g} {verdict}")
axis.axhline(1000 * found.error_without_reports, color="0.5", linestyle="--", label="who sees no report")
axis.set(xscale="log", xlabel="reports from the same place", ylabel="the adversary is off by, m", ylim=(0, None))
axis.set_xticks(reports, [str(one) for one in reports])
axis.minorticks_off()
axis.grid(color="0.9")
axis.legend()
figure.savefig(folder / "masks_give_away.png", dpi=100)
