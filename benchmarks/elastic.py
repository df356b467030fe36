"""What a map of ε costs: Rome and London, ε by density between 0.4 and 1.6 per km, beside one ε and the lower bound."""

from __future__ import annotations

import argparse
import json
import time

import metricdp as mdp

# Road nodes within the radius over which nobody is told apart by more than e.
PEOPLE, LEAST, MOST = 60, 0.4, 1.6


def measured(problem: mdp.Problem, seconds: float, clusters: int) -> dict[str, float]:
    """Return the losses of all that is compared, and the bound for the map."""
    here = mdp.EpsilonMap.by_density(problem, people=PEOPLE, least=LEAST, most=MOST)
    budgets = {"map": here, f"{LEAST}": LEAST, f"{MOST}": MOST}
    facts: dict[str, float] = {"mean_epsilon": float(here.at(problem.records).mean())}
    for name, budget in budgets.items():
        mechanism = mdp.fit(problem, budget, time_limit=seconds, progress=False)
        facts[f"auto {name}"] = mechanism.report["loss"]
        facts[f"cells {name}"] = mechanism.grid.cells if mechanism.method == "spline" else mechanism.method
    facts["laplace-remap least"] = mdp.fit(problem, here, "laplace-remap").expected_loss(problem)
    started = time.perf_counter()
    facts["bound"] = mdp.lower_bound(problem, here, clusters=clusters, time_limit=5 * seconds, progress=False)
    facts["bound seconds"] = time.perf_counter() - started
    facts["floor"] = problem.floor
    facts["below laplace-remap"] = 1 - facts["auto map"] / facts["laplace-remap least"]
    return facts


def main() -> None:
    """Print one line of JSON for each city and number of outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cities", nargs="+", default=["rome", "london"])
    parser.add_argument("--outputs", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of each auto; the bound has five times that")
    parser.add_argument("--clusters", type=int, default=1200)
    options = parser.parse_args()
    for count in options.outputs:
        for name in options.cities:
            problem = mdp.cities.load(name).problem(outputs=count, tasks=50, seed=0)
            facts = measured(problem, options.seconds, options.clusters)
            print(json.dumps({"city": name, "outputs": count, **facts}), flush=True)


if __name__ == "__main__":
    main()
