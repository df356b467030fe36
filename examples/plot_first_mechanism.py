"""A first mechanism: design it for a city, prove it private, draw where its reports go."""

import sys
from pathlib import Path

import metricdp as mdp
from metricdp.evaluate.figures import map_figure

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

city = mdp.cities.load("helsinki")
problem = city.problem(outputs=20, tasks=50, seed=0)
mechanism = mdp.fit(problem, epsilon=8, time_limit=5)  # per km: 1/ε = 125 m

print(mdp.certify(mechanism).claim)
print(f"expected error {mechanism.expected_loss(problem):.3f} km, {problem.floor:.3f} km without privacy")

here = problem.records[700]
print("ten reports from one place:", mechanism.sample([here] * 10).tolist())
map_figure(mechanism, here, city).savefig(folder / "first_mechanism.png")
