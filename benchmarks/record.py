"""The results of record: tables of losses, speed and attacks, measured once a release and kept in docs/results.

Every part is a command of its own and keeps each figure when it is measured: run it again and it goes on.

    python benchmarks/record.py methods       every method beside the lower bound: Rome, 20 outputs
    python benchmarks/record.py speed         ratios to scipy, Clarabel, qif, OpenDP and numpy, each pair in one run
    python benchmarks/record.py attacks       what an adversary learns from reports of one place, or along a trace
    python benchmarks/record.py scale         many outputs and large ε, from the store of scale.py
    python benchmarks/record.py paper         report, tables, figures and jobs of `metricdp reproduce`, from its folder

Rome and the taxis are read from the folder that METRICDP_DATA names.
"""

import argparse
import json
import os
import shutil
import sys
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

import metricdp as mdp

EPSILONS = (0.2, 0.4, 0.8, 1.6)
METHODS = ("em", "em-remap", "aipo-e", "laplace", "laplace-remap", "auto")
CLUSTERS = 2000
AUTO_SECONDS = 60.0

# The first line of each file: what its figures mean.
ABOUT = {
    "methods_rome.csv": "# Expected loss in km: Rome's road network, 20 outputs and 50 tasks of seed 0, p = 2, ε per "
    f"true km; auto has {AUTO_SECONDS:.0f} s, the bound {CLUSTERS:,} clusters.\n",
    "speed.csv": "# Seconds of both on two cores, one after the other; ratio: theirs over ours.\n",
    "attacks.csv": "# How far off an adversary is who sees so many reports, each drawn anew from the same place.\n",
    "attacks_taxis.csv": "# The same along 100 traces of San Francisco's taxis who report with exact planar noise.\n",
    "scale.csv": "# Rome, 50 tasks of seed 0, ε per km of the map; excess: above the floor, against laplace-remap's.\n",
    "scale_others.csv": "# The same for other cities, seeds, norms and squares as outputs.\n",
    "tiles.csv": "# Rome, 32 x 32 cells: tiles against what multipliers of the whole program prove to be the least.\n",
}


class Kept:
    """Figures by name, in a file that is written anew after each of them."""

    def __init__(self, path):
        self.path = path
        self.done = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name, measure):
        """Return a figure, measured now if it is not known."""
        if name not in self.done:
            print(f"{name} …", file=sys.stderr, flush=True)
            self.done[name] = measure() | {"measured": datetime.now(UTC).date().isoformat()}
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(self.done, indent=1))
            part.replace(self.path)
        return self.done[name]


def record_methods(kept):
    """Losses of all methods, ε per true km; every loss is exact."""
    problem = mdp.cities.load("rome").problem(outputs=20, tasks=50, seed=0)

    def fitted(method, epsilon):
        limit = {"time_limit": AUTO_SECONDS} if method == "auto" else {}
        started = time.perf_counter()
        mechanism = mdp.fit(problem, epsilon, method, **limit)
        seconds = time.perf_counter() - started
        proved = mdp.certify(mechanism).holds
        return {"loss": mechanism.expected_loss(problem), "certified": proved, "seconds": seconds}

    def bound(epsilon):
        started = time.perf_counter()
        least = mdp.lower_bound(problem, epsilon, clusters=CLUSTERS)
        return {"loss": least, "seconds": time.perf_counter() - started}

    bounds = {one: kept.get(f"bound {one}", lambda one=one: bound(one)) for one in EPSILONS}
    for method in METHODS:
        for epsilon in EPSILONS:
            found = kept.get(f"{method} {epsilon}", lambda method=method, epsilon=epsilon: fitted(method, epsilon))
            yield {
                "method": method,
                "epsilon": epsilon,
                "loss": found["loss"],
                "certified": found["certified"],
                "lower_bound": bounds[epsilon]["loss"],
                "seconds": found["seconds"],
                "measured": found["measured"],
            }


def record_speed(kept):
    """How many times faster than a peer, on the same work, one after the other."""
    import fit_aipo
    import fit_spline
    import grid_lp_qif
    import sample

    for epsilon in EPSILONS:
        yield {
            "work": f"Approx-APO, Rome, 17 x 16 anchors, ε = {epsilon}",
            "peer": "scipy.optimize.linprog",
            **kept.get(f"scipy {epsilon}", lambda epsilon=epsilon: fit_aipo.against_scipy(epsilon)),
        }
    for cells in (16, 24):
        for epsilon in (0.4, 1.6):
            yield {
                "work": f"spline, Rome, {cells} x {cells} cells, degree 2, ε = {epsilon}",
                "peer": "Clarabel, plain formulation",
                **kept.get(
                    f"clarabel {cells} {epsilon}",
                    lambda cells=cells, epsilon=epsilon: fit_spline.against_clarabel(cells, epsilon),
                ),
            }
    for side in (6, 7):
        yield {
            "work": f"optimal discrete mechanism, {side} x {side} places",
            "peer": "qif",
            **kept.get(f"qif {side}", lambda side=side: grid_lp_qif.against_qif(side)),
        }
    for outputs in (20, 1000):
        rates = kept.get(
            f"sample {outputs}", lambda outputs=outputs: sample.measure(outputs, 4_000_000, np.random.default_rng(0))
        )
        for peer, name in (
            ("OpenDP, exact selection", "opendp_per_second"),
            ("numpy, inverse CDF in floating point", "numpy_inverse_cdf_per_second"),
        ):
            ours, theirs = 1 / rates["exact_per_second"], 1 / rates[name]
            yield {
                "work": f"exact draws, spline with {outputs} outputs, per draw",
                "peer": peer,
                "ours_s": ours,
                "peer_s": theirs,
                "ratio": theirs / ours,
                "measured": rates["measured"],
            }


def record_attacks(kept):
    """How far off an adversary is who knows the mechanism, the prior and the map."""
    for city, epsilons in (("helsinki", (4.0, 8.0)), ("rome", (0.4, 1.6))):
        problem = mdp.cities.load(city).problem(outputs=20, tasks=50, seed=0)
        for epsilon in epsilons:
            for method in ("em", "laplace-remap", "auto"):

                def measure(problem=problem, epsilon=epsilon, method=method):
                    limit = {"time_limit": 20.0} if method == "auto" else {}
                    mechanism = mdp.fit(problem, epsilon, method, **limit)
                    return {"rows": mdp.attack(mechanism, problem, reports=[1, 10, 100]).to_dict()["table"]}

                found = kept.get(f"{city} {method} {epsilon}", measure)
                for row in found["rows"]:
                    yield _learned(city, method, epsilon, row, found["measured"])


def _learned(city, method, epsilon, row, measured):
    near = {f"within_{1000 * one['radius']:.0f}_m": one["chance"] for one in row["within"]}
    return {
        "city": city,
        "method": method,
        "epsilon_per_km": epsilon,
        "reports": row["reports"],
        "error_m": 1000 * row["error"],
        "standard_error_m": 1000 * row["standard_error"],
        "bayes_bound_m": 1000 * row["error_least"],
        **near,
        "measured": measured,
    }


def record_taxis(kept):
    """The same along traces of taxis, with a public model of movement; nobody may be below the Bayes bound."""
    import attack

    for every in (60, 300):
        for epsilon in (1.0, 2.0, 4.0):
            found = kept.get(
                f"taxis {every} {epsilon}", lambda every=every, epsilon=epsilon: attack.followed(every, epsilon)
            )
            for row in found["rows"]:
                yield {"every_s": every, "epsilon_per_km": epsilon, **row, "measured": found["measured"]}


def record_scale(store):
    """What scale.py has measured: the map over numbers of outputs and ε, other problems, and tiles against optima."""
    import scale

    done = scale.stored(store)
    rows = [dict(zip(scale.MAP_COLUMNS, row, strict=True)) for row in scale.map_rows(done)]
    of_map = [(row["city"], row["p"], row["seed"], isinstance(row["K"], int)) == ("rome", "2", 0, True) for row in rows]
    return {
        "scale.csv": [row for row, there in zip(rows, of_map, strict=True) if there],
        "scale_others.csv": [row for row, there in zip(rows, of_map, strict=True) if not there],
        "tiles.csv": [dict(zip(scale.ACCURACY_COLUMNS, row, strict=True)) for row in scale.accuracy_rows(done)],
    }


def record_paper(store, folder):
    """Copy the report with its tables and figures, and pack the finished jobs, always into the same bytes."""
    for part in ("tables", "figures"):
        shutil.copytree(store / part, folder / part, dirs_exist_ok=True)
    shutil.copy(store / "report.md", folder / "report.md")
    with tarfile.open(folder / "jobs.tar.xz", "w:xz", preset=9) as packed:
        for job in sorted((store / "results").glob("*.json")):
            entry = tarfile.TarInfo(f"results/{job.name}")
            entry.size = job.stat().st_size
            with job.open("rb") as file:
                packed.addfile(entry, file)
    print(folder / "report.md")


def write(rows, path):
    """Write a table, whole or not at all; say where."""
    part = path.with_suffix(".part")
    part.write_text(ABOUT[path.name] + pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"), encoding="utf-8")
    part.replace(path)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("methods", "speed", "attacks", "scale", "paper"))
    parser.add_argument("--store", type=Path, help="figures that are known, or the store of scale.py or reproduce")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    chosen = parser.parse_args()
    if not os.environ.get("METRICDP_DATA"):
        sys.exit("Say with METRICDP_DATA in which folder Rome and the taxis are.")
    chosen.out.mkdir(parents=True, exist_ok=True)
    store = chosen.store or Path(f"record-{chosen.part}.json")
    if chosen.part == "methods":
        write(list(record_methods(Kept(store))), chosen.out / "methods_rome.csv")
    elif chosen.part == "speed":
        write(list(record_speed(Kept(store))), chosen.out / "speed.csv")
    elif chosen.part == "attacks":
        kept = Kept(store)
        write(list(record_attacks(kept)), chosen.out / "attacks.csv")
        write(list(record_taxis(kept)), chosen.out / "attacks_taxis.csv")
    elif chosen.part == "scale":
        for name, rows in record_scale(store).items():
            write(rows, chosen.out / name)
    else:
        record_paper(store, chosen.out / "paper")


if __name__ == "__main__":
    main()
