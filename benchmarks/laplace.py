"""How Laplace noise with remap keeps up: processor seconds of the remap and of exact losses, by outputs and ε.

To compare with an older version run it there too (`PYTHONPATH=<its src>`) and divide. Exact losses of all records may
take very long there; `--records` takes a part of them, neighbours, and the seconds are scaled to all records.
"""

import argparse
import time

import numpy as np

import metricdp as mdp
from metricdp.mechanisms.laplace.fit import LaplaceOptions, fit_laplace_remap


def part_of(problem, count):
    """Return the problem with about `count` records, in groups of neighbours, and how many times more there were."""
    groups = 8
    by_place = np.lexsort((problem.records[:, 1], np.floor(problem.records[:, 0])))
    starts = np.linspace(0, problem.n_records - count // groups, groups).astype(int)
    chosen = np.unique(by_place[starts[:, None] + np.arange(count // groups)])
    part = mdp.Problem(
        problem.records[chosen], problem.outputs, problem.loss[chosen], p=problem.p, bounds=problem.bounds
    )
    return part, problem.n_records / len(chosen)


def seconds_of(work, *inputs):
    before = time.process_time()
    result = work(*inputs)
    return time.process_time() - before, result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--city", default="rome")
    parser.add_argument("--outputs", default="20,100,400,1000")
    parser.add_argument("--epsilons", default="0.4,1.6,4,8")
    parser.add_argument("--records", type=int, default=0, help="records whose losses are timed; 0 for all")
    chosen = parser.parse_args()
    network = mdp.cities.load(chosen.city)
    print("| K | ε | squares | remap, s | exact loss, s | loss |")
    print("|---|---|---|---|---|---|")
    for outputs in map(int, chosen.outputs.split(",")):
        problem = network.problem(outputs=outputs, tasks=50, seed=0)
        timed, factor = part_of(problem, chosen.records) if chosen.records else (problem, 1.0)
        for epsilon in map(float, chosen.epsilons.split(",")):
            # Not `metricdp.fit`, which also estimates the loss.
            remap, mechanism = seconds_of(fit_laplace_remap, problem, epsilon, LaplaceOptions())
            seconds, loss = seconds_of(mechanism.expected_loss, timed)
            known = f"{loss:.5f}" if timed is problem else ""
            laid = " x ".join(map(str, mechanism.labels.shape))
            print(f"| {outputs} | {epsilon:g} | {laid} | {remap:.2f} | {seconds * factor:.1f} | {known} |", flush=True)


if __name__ == "__main__":
    main()
