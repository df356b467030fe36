"""Rows per second and peak memory from Parquet to Parquet, against a plain copy of the same file, in one run."""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import metricdp as mdp

CHUNK = 1_000_000


def city():
    """Central Helsinki, 20 places, a certified spline."""
    problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
    return mdp.fit(problem, epsilon=8, method="spline", cells=24)


def write(path, mechanism, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    schema = pa.schema([("lon", pa.float64()), ("lat", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(rows // CHUNK):
            lonlat = mechanism.projection.to_lonlat(rng.uniform(*mechanism.bounds, (CHUNK, 2)))
            writer.write_table(pa.table({"lon": lonlat[:, 0], "lat": lonlat[:, 1]}), row_group_size=CHUNK)


def perturb(mechanism, source, target):
    from metricdp.perturb import perturb_file

    return perturb_file(mdp.load(mechanism), source, target).seconds


def copy(_, source, target):
    """Read and write the same file in batches, and do nothing else: the least that any job takes."""
    import pyarrow.parquet as pq

    started = time.perf_counter()
    file = pq.ParquetFile(source)
    with pq.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches(2**20):
            writer.write_batch(batch)
    return time.perf_counter() - started


def measured(work, *arguments):
    """Run in a process of its own, so that its peak memory is its own."""
    said = subprocess.run(
        [sys.executable, __file__, "--child", work, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return json.loads(said.stdout)


def child(work, arguments):
    started = time.perf_counter()
    seconds = {"perturb": perturb, "copy": copy}[work](*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "with_loading": time.perf_counter() - started, "peak_mb": peak}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+")
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1:])
        return
    answers = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        mechanism = city()
        mechanism.save(Path(folder) / "city.mdp")
        for millions in options.millions:
            answers.append(one_size(Path(folder), mechanism, millions, options.repeats))
            if not options.json:
                show(answers[-1])
    if options.json:
        print(json.dumps(answers, indent=1))


def one_size(folder, mechanism, millions, repeats):
    source, target = folder / "in.parquet", folder / "out.parquet"
    write(source, mechanism, millions * 1_000_000)
    runs = {"perturb": [], "copy": []}
    # Alternating, so that other work on the machine slows down both.
    for _ in range(repeats):
        for work, results in runs.items():
            results.append(measured(work, folder / "city.mdp", source, target))
            target.unlink()
    best = {work: min(results, key=lambda run: run["seconds"]) for work, results in runs.items()}
    return {
        "million_rows": millions,
        "rows_per_second": millions * 1e6 / best["perturb"]["seconds"],
        "rows_per_second_of_a_copy": millions * 1e6 / best["copy"]["seconds"],
        "times_a_copy": best["perturb"]["seconds"] / best["copy"]["seconds"],
        "peak_mb": max(run["peak_mb"] for run in runs["perturb"]),
        "peak_mb_of_a_copy": max(run["peak_mb"] for run in runs["copy"]),
        "all_seconds": [run["seconds"] for run in runs["perturb"]],
    }


def show(answer):
    print(
        f"{answer['million_rows']} million rows: {answer['rows_per_second'] / 1e6:.2f} million rows/s, "
        f"{answer['times_a_copy']:.2f} times as long as a plain copy; peak {answer['peak_mb']:.0f} MB "
        f"(copy {answer['peak_mb_of_a_copy']:.0f} MB); runs {', '.join(f'{s:.1f} s' for s in answer['all_seconds'])}",
        flush=True,
    )


if __name__ == "__main__":
    main()
