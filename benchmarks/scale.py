"""Hundreds of outputs and large ε: what `auto` reaches in its time, beside laplace-remap, bounds and other solvers.

Each measurement runs in a process of its own, so that peak memory is its own, and is stored when it is done: a run
that was ended goes on where it stopped. ε is per kilometre of the plane: problems have no projection.

    python benchmarks/scale.py --store scale.json                   the map over K x ε, Rome
    python benchmarks/scale.py --store scale.json --only 100,1.6 --only 400,4
    python benchmarks/scale.py --store scale.json --only 100,1.6 --seconds 120 --city london --p 1 --seed 3
    python benchmarks/scale.py --store scale.json --only h3:7,4     cells of a grid as outputs
    python benchmarks/scale.py --store scale.json --mode bounds     lower bounds for the map
    python benchmarks/scale.py --store scale.json --mode accuracy   tiles against the whole program on 32 x 32 cells
    python benchmarks/scale.py --store scale.json --mode peers      `auto` without tiles, and Clarabel
    python benchmarks/scale.py --store scale.json --mode growth     processor seconds in K, cells and ε
    python benchmarks/scale.py --store scale.json --table           show what is stored
    python benchmarks/scale.py --store scale.json --plot scale.png  and draw it
"""

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import metricdp as mdp

OUTPUTS, EPSILONS = (20, 100, 400, 1000), (0.4, 1.6, 4.0, 8.0)
# Seconds of `auto` by number of outputs, unless --seconds says otherwise.
SECONDS = {20: 60.0, 100: 120.0, 400: 180.0, 1000: 300.0}
# Clusters of the bounds by number of outputs, few enough for a minute or two each.
CLUSTERS = {20: 1000, 100: 3000, 400: 2000, 1000: 1500}

# Splines on 32 x 32 cells by number of outputs: what `spline` does by default, what `auto` does, and cells that differ
# most in width.
LAID = {20: ((2, "adaptive"), (3, "graded"), (3, "adaptive")), 100: ((2, "adaptive"), (3, "graded"))}
ACCURACY = [
    (outputs, epsilon, laid) for outputs, choices in LAID.items() for laid in choices for epsilon in (0.4, 1.6, 4.0)
]

# Growth: one of K, cells and ε varies.
GROWTH = {
    "K": [(outputs, 1.6, 48) for outputs in (20, 100, 400, 1000)],
    "cells": [(100, 1.6, cells) for cells in (32, 48, 64, 96, 128)],
    "ε": [(100, epsilon, 48) for epsilon in (0.4, 0.8, 1.6, 4.0, 8.0)],
}


def problem_for(job):
    """A city's problem without its projection, so that ε is that of the plane."""
    made = mdp.cities.load(job["city"]).problem(outputs=job["outputs"], tasks=50, seed=job["seed"], p=job["p"])
    return mdp.Problem(made.records, made.outputs, made.loss, prior=made.prior, p=made.p, bounds=made.bounds)


def fitted(problem, job):
    """Design as the job says; "whole programs" is `auto` as it was before there were tiles."""
    method, options = job["method"], {"time_limit": job.get("seconds")}
    if method == "whole programs":
        from metricdp.mechanisms.spline.plan import TilePlan

        TilePlan.of = classmethod(lambda *_: None)
        method = "auto"
    elif method in ("tiles", "structured", "clarabel"):
        options |= {"solver": method, "cells": job["cells"], "degree": job["degree"], "breakpoints": job["breakpoints"]}
        method = "spline"
        if "gap" in job:
            options["gap"] = job["gap"]
    return mdp.fit(problem, job["epsilon"], method, **options)


def measure(job):
    """Fit, certify again, draw, save, and say what it took; or bound the loss of every mechanism from below."""
    problem = problem_for(job)
    facts = {"n_outputs": problem.n_outputs, "floor": problem.floor, "load_before": os.getloadavg()[0]}
    wall, processor = time.perf_counter(), time.process_time()
    if job["method"] == "bound":
        facts["bound"] = mdp.lower_bound(problem, job["epsilon"], clusters=job["clusters"])
        mechanism = None
    else:
        mechanism = fitted(problem, job)
    facts["took_s"], facts["processor_s"] = time.perf_counter() - wall, time.process_time() - processor
    facts["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return facts if mechanism is None else facts | used(mechanism, problem) | kept(facts, job)


def kept(facts, job):
    """Whether the limit was kept, if there was one."""
    return {"kept_its_limit": facts["took_s"] <= 1.2 * job["seconds"] + 2} if "seconds" in job else {}


def used(mechanism, problem):
    """What a mechanism is worth, and what proving, drawing and storing it takes."""
    started = time.perf_counter()
    holds = mdp.certify(mechanism).holds
    certify_seconds = time.perf_counter() - started
    points = np.random.default_rng(0).uniform(*problem.bounds, size=(2_000_000, problem.n_axes))
    mechanism.sample(points[:1])
    started = time.perf_counter()
    mechanism.sample(points)
    draws_per_second = len(points) / (time.perf_counter() - started)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mechanism.mdp"
        mechanism.save(path)
        size = path.stat().st_size / 1e6
    names = ("loss", "loss_exact", "cells", "solver", "status", "iterations", "program_bound", "tried")
    report = dict(mechanism.report)
    if not report.get("loss_exact", True):
        report |= {"loss": mechanism.expected_loss(problem), "loss_exact": True}
    return {
        **{name: report.get(name) for name in names},
        "method": mechanism.method,
        "file_mb": size,
        "certify_s": certify_seconds,
        "certified": holds,
        "draws_per_s": draws_per_second,
    }


def run(job, store):
    """Measure one job in a process of its own and keep the result."""
    done = json.loads(store.read_text()) if store.exists() else {}
    key = json.dumps(job, sort_keys=True)
    if key in done:
        return
    print(f"{job} …", file=sys.stderr, flush=True)
    answer = subprocess.run([sys.executable, __file__, "--job", key], stdout=subprocess.PIPE, check=True, text=True)
    done[key] = json.loads(answer.stdout)
    part = store.with_suffix(".part")
    part.write_text(json.dumps(done, indent=1))
    part.replace(store)


def jobs_of(chosen):
    """Yield the jobs of a mode."""
    city = {"city": chosen.city, "p": chosen.p, "seed": chosen.seed}
    cells = [pair.rsplit(",", 1) for pair in chosen.only or ()]
    cells = [(int(outputs) if outputs.isdigit() else outputs, float(epsilon)) for outputs, epsilon in cells]
    cells = cells or [(outputs, epsilon) for outputs in OUTPUTS for epsilon in EPSILONS]
    if chosen.mode in ("map", "peers", "bounds"):
        for outputs, epsilon in cells:
            job = city | {"outputs": outputs, "epsilon": epsilon}
            timed = job | {"seconds": chosen.seconds or SECONDS.get(outputs, 120.0)}
            if chosen.mode == "map":
                yield from (timed | {"method": method} for method in ("laplace-remap", "auto"))
            elif chosen.mode == "bounds":
                yield job | {"method": "bound", "clusters": chosen.clusters or CLUSTERS.get(outputs, 1000)}
            else:
                yield timed | {"method": "whole programs"}
                yield timed | {"method": "clarabel", "cells": 24, "degree": 2, "breakpoints": "adaptive"}
    elif chosen.mode == "accuracy":
        for outputs, epsilon, (degree, breakpoints) in ACCURACY:
            job = city | {"outputs": outputs, "epsilon": epsilon, "cells": 32, "degree": degree}
            job |= {"breakpoints": breakpoints}
            yield job | {"method": "structured", "gap": 2e-4}
            yield job | {"method": "tiles"}
    else:
        for outputs, epsilon, count in itertools.chain(*GROWTH.values()):
            job = city | {"outputs": outputs, "epsilon": epsilon, "cells": count, "degree": 3, "breakpoints": "graded"}
            yield job | {"method": "tiles"}


def stored(store):
    """Return (job, result) of everything measured."""
    return [(json.loads(key), value) for key, value in json.loads(store.read_text()).items()]


def place_of(job):
    """What a job shares with others of the same problem and ε."""
    return tuple(job[name] for name in ("city", "p", "seed", "outputs", "epsilon"))


def print_table(columns, rows):
    if rows:
        print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
        for row in rows:
            print("| " + " | ".join(map(str, row)) + " |")
        print()


def map_rows(done):
    """The map: loss, the cost of privacy relative to that of Laplace noise with remap, and what it took."""
    peers = {place_of(job): found["loss"] for job, found in done if job["method"] == "laplace-remap"}
    bounds = {}
    for job, found in done:
        if job["method"] == "bound":
            bounds[place_of(job)] = max(found["bound"], bounds.get(place_of(job), 0.0))
    rows = []
    for job, found in done:
        if job["method"] == "auto":
            place, floor = place_of(job), found["floor"]
            peer, bound = peers.get(place, math.nan), bounds.get(place, math.nan)
            rows.append(
                (
                    *(job["city"], f"{job['p']:g}", job["seed"], job["outputs"], f"{job['epsilon']:g}"),
                    *(
                        f"{job['seconds']:g}",
                        found["method"],
                        "x".join(map(str, found["cells"] or ())) or found["method"],
                    ),
                    *(f"{found['loss']:.4f}", f"{floor:.4f}", f"{peer:.4f}"),
                    f"{round((found['loss'] - floor) / (peer - floor) - 1, 3) + 0.0:+.1%}",  # no -0.0
                    f"{found['loss'] / bound:.3f}",
                    *(f"{found['took_s']:.0f}", f"{found['processor_s']:.0f}"),
                    "yes" if found["kept_its_limit"] else "NO",
                    *(f"{found['peak_gb']:.2f}", f"{found['file_mb']:.1f}", f"{found['certify_s']:.1f}"),
                    f"{found['draws_per_s'] / 1e6:.1f}",
                )
            )
    return sorted(rows, key=lambda row: (row[0], str(row[3]).zfill(6), float(row[4]), float(row[5])))


MAP_COLUMNS = (
    "city", "p", "seed", "K", "ε", "T, s", "method", "cells", "loss", "floor", "laplace-remap", "excess",
    "÷ bound", "took, s", "processor, s", "kept", "peak, GB", "file, MB", "certify, s", "million draws/s",
)  # fmt: skip


def accuracy_rows(done):
    """How far tiles end above the optimum of the whole program, which its own bound is within 0.02 % of."""
    same = ("city", "p", "seed", "outputs", "epsilon", "degree", "breakpoints", "cells")
    whole = {tuple(job[name] for name in same): found for job, found in done if job["method"] == "structured"}
    rows = []
    for job, found in done:
        best = whole.get(tuple(job.get(name) for name in same))
        if job["method"] == "tiles" and best is not None:
            rows.append(
                (
                    *(job["outputs"], f"{job['epsilon']:g}", job["degree"], job["breakpoints"]),
                    *(f"{best['program_bound']:.4f}", f"{best['loss']:.4f}", f"{found['loss']:.4f}"),
                    f"{found['loss'] / best['program_bound'] - 1:+.3%}",
                    *(f"{best['processor_s']:.0f}", f"{found['processor_s']:.0f}"),
                )
            )
    return rows


ACCURACY_COLUMNS = (
    "K", "ε", "degree", "breakpoints", "bound of the whole program", "whole program", "tiles", "tiles above the bound",
    "whole, processor s", "tiles, processor s",
)  # fmt: skip


def peer_rows(done):
    """`auto` beside itself without tiles and beside Clarabel's plain formulation, in the same time."""
    ours = {(place_of(job), job["seconds"]): found for job, found in done if job["method"] == "auto"}
    rows = []
    for job, found in done:
        auto = ours.get((place_of(job), job.get("seconds")))
        if job["method"] in ("whole programs", "clarabel") and auto is not None:
            excess = (auto["loss"] - auto["floor"]) / (found["loss"] - auto["floor"])
            cells = "x".join(map(str, found["cells"] or ()))
            rows.append(
                (
                    *(job["outputs"], f"{job['epsilon']:g}", f"{job['seconds']:g}", job["method"], cells),
                    *(f"{found['loss']:.4f}", f"{found['took_s']:.0f}", f"{auto['loss']:.4f}", f"{excess:.3f}"),
                )
            )
    return rows


PEER_COLUMNS = ("K", "ε", "T, s", "peer", "cells", "its loss", "took, s", "auto", "auto's excess ÷ its excess")


def growth_of(done):
    """Return, per quantity that grows, its values and the processor seconds."""
    keys = {(job["outputs"], job["epsilon"], job["cells"]): found for job, found in done if _is_growth(job)}
    grown = {}
    for name, cases in GROWTH.items():
        known = [(case[("K", "ε", "cells").index(name)], keys[case]["processor_s"]) for case in cases if case in keys]
        grown[name] = known
    return grown


def _is_growth(job):
    return job["method"] == "tiles" and (job["degree"], job["breakpoints"], job["city"]) == (3, "graded", "rome")


def show(store):
    """Print what is stored."""
    done = stored(store)
    print_table(MAP_COLUMNS, map_rows(done))
    print_table(ACCURACY_COLUMNS, accuracy_rows(done))
    print_table(PEER_COLUMNS, peer_rows(done))
    for name, known in growth_of(done).items():
        print_table((name, "processor, s"), [(value, f"{seconds:.1f}") for value, seconds in known])


def draw(store, path):
    """Draw the map, and how times grow if that was measured."""
    from matplotlib.figure import Figure

    done = stored(store)
    grown = {name: known for name, known in growth_of(done).items() if len(known) > 2}
    figure = Figure(figsize=(11, 7 if grown else 3.6), layout="constrained")
    panels = figure.subplots(2 if grown else 1, 3, squeeze=False)
    (gain, memory, size), growth = panels[0], panels[1:].ravel()
    peers = {place_of(job): found["loss"] for job, found in done if job["method"] == "laplace-remap"}
    runs = [(job, one) for job, one in done if job["method"] == "auto" and place_of(job)[:3] == ("rome", 2.0, 0)]
    runs = [(job, one) for job, one in runs if job["outputs"] in OUTPUTS and job["epsilon"] in EPSILONS]
    for outputs in OUTPUTS:
        of_outputs = sorted(((job, one) for job, one in runs if job["outputs"] == outputs), key=_epsilon_and_time)
        last = {job["epsilon"]: (job, one) for job, one in of_outputs}  # the longest time
        epsilons = list(last)
        shares = [(one["loss"] - one["floor"]) / (peers[place_of(job)] - one["floor"]) for job, one in last.values()]
        gain.semilogx(epsilons, shares, marker="o", label=f"K = {outputs}")
        memory.loglog(epsilons, [one["peak_gb"] for _, one in last.values()], marker="o")
        size.loglog(epsilons, [one["file_mb"] for _, one in last.values()], marker="o")
    for axes, title in zip(
        (gain, memory, size), ("excess ÷ laplace-remap's", "peak memory, GB", "file, MB"), strict=True
    ):
        axes.set(title=title, xlabel="ε per km")
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.minorticks_off()
    gain.axhline(1.0, color="grey", linewidth=0.8)
    gain.legend(fontsize="small")
    for axes, (name, known) in zip(growth, grown.items(), strict=False):
        values, seconds = zip(*known, strict=True)
        axes.loglog(values, seconds, marker="o")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set(title=f"tiles: processor seconds by {name}", xlabel=name)
    figure.savefig(path, dpi=110)


def _epsilon_and_time(pair):
    return pair[0]["epsilon"], pair[0]["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("scale.json"))
    parser.add_argument("--mode", choices=("map", "bounds", "accuracy", "peers", "growth"), default="map")
    parser.add_argument("--only", action="append", metavar="K,EPSILON", help="a cell of the map, or another one")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--clusters", type=int)
    parser.add_argument("--city", default="rome")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--p", type=float, default=2.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        print(json.dumps(measure(json.loads(chosen.job))))
        return
    if not (chosen.table or chosen.plot):
        for job in jobs_of(chosen):
            run(job, chosen.store)
    show(chosen.store)
    if chosen.plot:
        draw(chosen.store, chosen.plot)


if __name__ == "__main__":
    main()
