"""
One-dimensional data
====================

Resting heart rates, one report per person.

ε = 0.25, so that heart rates 4 per minute apart are at most e times apart in what they report. Left: how likely each
report (across, in steps of 5) is for each heart rate (up). The mechanism was designed for heart rates spread evenly
from 40 to 100, without a look at anybody's. Right: the reports (line) are more spread than the heart rates (bars),
because they are noisy. But how noisy is no secret, so that the counts behind them can be estimated from them alone
(dots). That is for one report each: whoever reports twice spends 2 ε.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

epsilon, levels = 0.25, np.arange(45.0, 96.0, 5.0)
problem = mdp.Problem(np.linspace(40, 100, 601), levels, "euclidean")
for method in ("em", "laplace", "laplace-remap", "spline"):
    mechanism = mdp.fit(problem, epsilon, method)
    print(f"{method}: expected error {mechanism.expected_loss(problem):.2f} per minute")
print(f"bound: no private mechanism is below {mdp.lower_bound(problem, epsilon, clusters=200):.2f} per minute")

people = np.random.default_rng(0)
rates = np.concatenate([people.normal(69, 7, 15_000), people.normal(53, 3, 5_000)]).clip(40, 100)  # some do sports
truth = np.bincount(np.abs(rates[:, None] - levels).argmin(axis=1))  # to the nearest level
reports = mechanism.sample(rates, rng=mdp.InsecureSeed(1))  # a seed makes it repeatable, and not private
seen = np.bincount(reports, minlength=len(levels))
# Expectation maximisation: hand reports back to where they may have come from. Many more rounds would fit the noise.
rows = mechanism.probabilities(levels)
estimate = np.full(len(levels), len(rates) / len(levels))
for _ in range(30):
    estimate *= rows @ (seen / (estimate @ rows))
for name, counts in (("people", truth), ("reports", seen), ("estimate", estimate)):
    print(f"{name}: mean {counts @ levels / len(rates):.1f}, off by {np.abs(counts - truth).sum() / len(rates):.0%}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4.4), layout="constrained")
true = np.linspace(40, 100, 241)
picture = left.pcolormesh(levels, true, mechanism.probabilities(true), cmap="cividis")
figure.colorbar(picture, ax=left, label="probability of the report", location="top")
left.set(xlabel="reported heart rate per minute", ylabel="true heart rate per minute")
right.bar(levels, truth, 4.5, color="0.8", label="20,000 people")
right.stairs(seen, np.append(levels, 100) - 2.5, color="#d55e00", linewidth=2, label="their reports")
right.plot(levels, estimate, "o", color="#0072b2", label="estimated from reports")
right.set(xlabel="heart rate per minute", ylabel="people", ylim=(0, 5800))
right.legend()
figure.savefig(folder / "sensor_data.png", dpi=100)
