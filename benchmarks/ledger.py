"""Requests per second through a ledger, by size of batch, without waiting for the disk, shared, and with windows."""

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


def rate(design, folder, shape, seconds_between=None, **options):
    """Batches of one size against one ledger; the first, which makes the persons' rows, is not counted.

    With `seconds_between`, each batch has the time of so many seconds after the one before.
    """
    rows, persons, batches = shape
    rng = np.random.default_rng(1)
    users = rng.integers(0, persons, (batches + 1, rows)).astype(str).astype(object)
    points = rng.uniform(0, SIDE, (batches + 1, rows, 2))
    path = Path(folder, f"{time.time_ns()}.db")
    with mdp.Ledger(path, max_epsilon=1000, **options) as ledger:
        if persons > rows:
            everybody = np.arange(persons).astype(str).astype(object)
            ledger.sample(design, everybody, np.tile(points[0], (persons // rows, 1)), times=at(0, seconds_between))
        ledger.sample(design, users[0], points[0], times=at(0, seconds_between))
        started = time.perf_counter()
        for number, (batch, where) in enumerate(zip(users[1:], points[1:], strict=True)):
            ledger.sample(design, batch, where, times=at(number, seconds_between))
        return rows * batches / (time.perf_counter() - started)


def at(number, seconds_between):
    return None if seconds_between is None else 1_700_000_000 + number * seconds_between


def windows(design, folder, repeats):
    """Yield (what, requests per second without times, and by what they are multiplied in time) for each kind of ledger.

    Ledgers take turns, so that what else the machine does is shared; the middle of several runs counts. Either every
    request is drawn, and charges expire from the second batch on, or a tenth of the batches begins a new period.
    """
    kinds = {
        "lifetime": {},
        "window, all drawn, none expires": {"window": "24h", "seconds_between": 60},
        "window, all drawn, all expire": {"window": "30s", "seconds_between": 60},
        "window and schedule": {"window": "24h", "every": "10min", "seconds_between": 60},
    }
    for shape in (*SHAPES[:4],):
        runs = [[rate(design, folder, shape, **options) for options in kinds.values()] for _ in range(repeats)]
        middle = np.median(np.array(runs), axis=0)
        for kind, per_second in zip(kinds, middle, strict=True):
            yield f"batches of {shape[0]:,}, {shape[1]:,} persons: {kind}", per_second, per_second / middle[0]


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
    parser.add_argument("--windows", action="store_true", help="only the price of windows, as a ratio")
    arguments = parser.parse_args()
    design, answers = mechanism(), []
    design.sample(np.zeros((1, 2)))  # tables are made once

    def tell(what, per_second):
        answers.append({"what": what, "requests_per_second": per_second})
        if not arguments.json:
            print(f"{what}: {per_second:,.0f} requests/s", flush=True)

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for what, per_second, ratio in windows(design, folder, 3):
            answers.append({"what": what, "requests_per_second": per_second, "ratio_to_lifetime": ratio})
            if not arguments.json:
                print(f"{what}: {per_second:,.0f} requests/s, {ratio:.2f} of a lifetime sum", flush=True)
        for shape in () if arguments.windows else SHAPES:
            name = f"batches of {shape[0]:,}, {shape[1]:,} persons"
            tell(name, rate(design, folder, shape))
        for radius in () if arguments.windows else (0.0, 0.2):
            tell(
                f"batches of 100,000, 1,000 persons, sticky_km={radius}",
                rate(design, folder, SHAPES[2], sticky_km=radius),
            )
        safe = _ledger_file._SETUP  # noqa: SLF001
        _ledger_file._SETUP = safe.replace("synchronous = FULL", "synchronous = NORMAL")  # noqa: SLF001
        for shape in () if arguments.windows else (SHAPES[0], SHAPES[3]):
            name = f"the same without waiting for the disk: batches of {shape[0]:,}, {shape[1]:,} persons"
            tell(name, rate(design, folder, shape))
        _ledger_file._SETUP = safe  # noqa: SLF001
        for rows, batches in () if arguments.windows else ((1, 50), (100, 50), (10_000, 5)):
            tell(f"8 processes, batches of {rows:,}, 100 persons", shared(design, folder, 8, rows, batches))
    if arguments.json:
        print(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
