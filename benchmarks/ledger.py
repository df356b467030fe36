"""Requests per second through a ledger, by size of batch, with and without waiting for the disk, and shared."""

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

import metricdp as mdp
from metricdp.ledger import database as _ledger_file

SIDE, OUTPUTS = 40.0, 20
# (rows in a batch, persons, batches)
SHAPES = [(1, 1000, 300), (100, 1000, 100), (100_000, 1000, 5), (100_000, 100_000, 5), (100_000, 1_000_000, 5)]


def mechanism():
    rng = np.random.default_rng(0)
    problem = mdp.Problem(
        rng.uniform(0, SIDE, (500, 2)), rng.uniform(0, SIDE, (OUTPUTS, 2)), "euclidean", bounds=[[0, 0], [SIDE, SIDE]]
    )
    return mdp.fit(problem, epsilon=0.1, method="spline", cells=6)


def rate(design, folder, shape, **options):
    """Batches of one size against one ledger; the first, which makes the persons' rows, is not counted."""
    rows, persons, batches = shape
    rng = np.random.default_rng(1)
    users = rng.integers(0, persons, (batches + 1, rows)).astype(str).astype(object)
    points = rng.uniform(0, SIDE, (batches + 1, rows, 2))
    path = Path(folder, f"{time.time_ns()}.db")
    with mdp.Ledger(path, max_epsilon=1000, **options) as ledger:
        if persons > rows:
            everybody = np.arange(persons).astype(str).astype(object)
            ledger.sample(design, everybody, np.tile(points[0], (persons // rows, 1)))
        ledger.sample(design, users[0], points[0])
        started = time.perf_counter()
        for batch, where in zip(users[1:], points[1:], strict=True):
            ledger.sample(design, batch, where)
        return rows * batches / (time.perf_counter() - started)


def share(path, design, rows, batches):
    rng = np.random.default_rng()
    with mdp.Ledger(path, max_epsilon=1000) as ledger:
        for _ in range(batches):
            ledger.sample(design, rng.integers(0, 100, rows), rng.uniform(0, SIDE, (rows, 2)))


def shared(design, folder, processes, rows, batches):
    path = Path(folder, f"{time.time_ns()}.db")
    mdp.Ledger(path, max_epsilon=1000).close()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=share, args=(path, design, rows, batches)) for _ in range(processes)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return processes * rows * batches / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", help="on the disk to be measured; default: a temporary folder")
    arguments = parser.parse_args()
    design, answers = mechanism(), []
    design.sample(np.zeros((1, 2)))  # tables are made once

    def tell(what, per_second):
        answers.append({"what": what, "requests_per_second": per_second})
        if not arguments.json:
            print(f"{what}: {per_second:,.0f} requests/s", flush=True)

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for shape in SHAPES:
            name = f"batches of {shape[0]:,}, {shape[1]:,} persons"
            tell(name, rate(design, folder, shape))
        for radius in (0.0, 0.2):
            tell(
                f"batches of 100,000, 1,000 persons, sticky_km={radius}",
                rate(design, folder, SHAPES[2], sticky_km=radius),
            )
        safe = _ledger_file._SETUP  # noqa: SLF001
        _ledger_file._SETUP = safe.replace("synchronous = FULL", "synchronous = NORMAL")  # noqa: SLF001
        for shape in (SHAPES[0], SHAPES[3]):
            name = f"the same without waiting for the disk: batches of {shape[0]:,}, {shape[1]:,} persons"
            tell(name, rate(design, folder, shape))
        _ledger_file._SETUP = safe  # noqa: SLF001
        for rows, batches in ((1, 50), (100, 50), (10_000, 5)):
            tell(f"8 processes, batches of {rows:,}, 100 persons", shared(design, folder, 8, rows, batches))
    if arguments.json:
        print(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
