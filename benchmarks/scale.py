"""Hundreds of outputs and large ε: a map over K x ε of what `auto` reaches in its time, beside laplace-remap.

Each cell of the map runs in a process of its own, so that peak memory is its own, and is stored when it is done: a run
that was ended goes on where it stopped. ε is per kilometre of the plane: problems have no projection.

    python benchmarks/scale.py --store scale.json                   the whole map, Rome
    python benchmarks/scale.py --store scale.json --only 100,1.6 --only 400,4
    python benchmarks/scale.py --store scale.json --only 100,1.6 --seconds 120 --city london --p 1 --seed 3
    python benchmarks/scale.py --store scale.json --table           show what is stored
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import metricdp as mdp

OUTPUTS, EPSILONS = (20, 100, 400, 1000), (0.4, 1.6, 4.0, 8.0)
# Seconds of `auto` by number of outputs, unless --seconds says otherwise.
SECONDS = {20: 60.0, 100: 120.0, 400: 360.0, 1000: 600.0}


def problem_for(job):
    """A city's problem without its projection, so that ε is that of the plane."""
    made = mdp.cities.load(job["city"]).problem(outputs=job["outputs"], tasks=50, seed=job["seed"], p=job["p"])
    return mdp.Problem(made.records, made.outputs, made.loss, prior=made.prior, p=made.p, bounds=made.bounds)


def measure(job):
    """Fit, certify again, save, and say what it took."""
    problem = problem_for(job)
    load = os.getloadavg()[0]
    wall, processor = time.perf_counter(), time.process_time()
    mechanism = mdp.fit(problem, job["epsilon"], job["method"], time_limit=job["seconds"])
    took, spent = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    started = time.perf_counter()
    holds = mdp.certify(mechanism).holds
    certify_seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mechanism.mdp"
        mechanism.save(path)
        size = path.stat().st_size / 1e6
    report = mechanism.report
    return {
        "loss": report["loss"],
        "loss_exact": report["loss_exact"],
        "floor": problem.floor,
        "method": mechanism.method,
        "cells": report.get("cells"),
        "solver": report.get("solver"),
        "status": report.get("status"),
        "took_s": took,
        "processor_s": spent,
        "kept_its_limit": took <= 1.2 * job["seconds"] + 2,
        "peak_gb": peak,
        "file_mb": size,
        "certify_s": certify_seconds,
        "certified": holds,
        "load_before": load,
        "tried": report.get("tried"),
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


COLUMNS = (
    "city", "p", "seed", "K", "ε", "T, s", "method", "cells", "loss", "floor", "laplace-remap", "excess ÷ its excess",
    "took, s", "processor, s", "kept", "peak, GB", "file, MB", "certify, s",
)  # fmt: skip


def show(store):
    """Print the map: loss, and the cost of privacy relative to that of Laplace noise with remap."""
    done = [(json.loads(key), value) for key, value in json.loads(store.read_text()).items()]
    same = ("city", "p", "seed", "outputs", "epsilon")
    peers = {tuple(job[k] for k in same): found["loss"] for job, found in done if job["method"] == "laplace-remap"}
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for job, found in done:
        if job["method"] != "auto":
            continue
        peer, floor = peers.get(tuple(job[k] for k in same), math.nan), found["floor"]
        row = (
            *(job["city"], f"{job['p']:g}", job["seed"], job["outputs"], f"{job['epsilon']:g}", f"{job['seconds']:g}"),
            *(found["method"], "x".join(map(str, found["cells"] or ()))),
            *(f"{found['loss']:.4f}", f"{floor:.4f}", f"{peer:.4f}", f"{(found['loss'] - floor) / (peer - floor):.3f}"),
            *(f"{found['took_s']:.0f}", f"{found['processor_s']:.0f}", "yes" if found["kept_its_limit"] else "NO"),
            *(f"{found['peak_gb']:.2f}", f"{found['file_mb']:.1f}", f"{found['certify_s']:.1f}"),
        )
        print("| " + " | ".join(map(str, row)) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("scale.json"))
    parser.add_argument("--only", action="append", metavar="K,EPSILON", help="a cell of the map, or another one")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--city", default="rome")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--p", type=float, default=2.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        print(json.dumps(measure(json.loads(chosen.job))))
        return
    if not chosen.table:
        cells = [tuple(map(float, pair.split(","))) for pair in chosen.only or ()]
        cells = cells or [(outputs, epsilon) for outputs in OUTPUTS for epsilon in EPSILONS]
        for outputs, epsilon in cells:
            seconds = chosen.seconds or SECONDS.get(int(outputs), 240.0)
            job = {"city": chosen.city, "p": chosen.p, "seed": chosen.seed, "outputs": int(outputs), "epsilon": epsilon}
            for method in ("laplace-remap", "auto"):
                run(job | {"method": method, "seconds": seconds}, chosen.store)
    show(chosen.store)


if __name__ == "__main__":
    main()
