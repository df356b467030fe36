"""Exact samples and exact noise per second, against what does without exactness and against exact peers, in one run."""

import argparse
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from metricdp.drawing.randomness import SecureRandom
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.noise.exact import LatticeNoise
from metricdp.mechanisms.spline.mechanism import Spline

STEP, SIDE, CELLS, DEGREE = 2.0**-20, 40.0, 24, 2
NOISE_RATE, NOISE_CHUNK, NOISE_CHUNKS = 2.0**-20, 2**15, 40
NOISES = [(2.0, 2), (1.0, 2), (math.inf, 2), (1.5, 2), (2.0, 3), (2.0, 1)]


def mechanism(n_outputs, rng):
    """A table as `fit` makes them; privacy does not matter for speed, so the rows are random."""
    grid = Grid.uniform(np.array([[0.0, 0.0], [SIDE, SIDE]]), CELLS).on_lattice(STEP)
    rows = rng.dirichlet(np.full(n_outputs, 0.3), size=(DEGREE * CELLS + 1) ** 2)
    fields = {"outputs": rng.uniform(0, SIDE, (n_outputs, 2)), "bounds": grid.bounds, "epsilon": 1.0, "p": 2.0}
    return Spline.from_probabilities({**fields, "method": "spline"}, STEP, grid, DEGREE, rows)


def inverse_cdf(points, spline, rng):
    """What one writes with numpy: rows in floating point, cumulated, compared with PCG64 floats."""
    drawn = np.empty(len(points), dtype=np.intp)
    step = max(1, 2**21 // spline.n_outputs)
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        ladder = spline.probabilities(points[part]).cumsum(axis=1)
        drawn[part] = (ladder < rng.random((len(points[part]), 1))).sum(axis=1)
    return drawn


def opendp_selection(points, spline):
    """OpenDP's exact selection with Gumbel noise, one call per draw; with logarithms as scores its law is the row."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    select = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=1.0)
    for row in spline.probabilities(points):
        select(np.log(row).tolist())


def rate(work, points, *arguments):
    started = time.perf_counter()
    work(points, *arguments)
    return len(points) / (time.perf_counter() - started)


def measure(n_outputs, n_points, rng):
    spline = mechanism(n_outputs, rng)
    points = rng.uniform(0, SIDE, (n_points, 2))
    started = time.perf_counter()
    spline.sample(points[:1])
    tables = time.perf_counter() - started
    return {
        "outputs": n_outputs,
        "exact_per_second": max(rate(spline.sample, points) for _ in range(3)),
        "numpy_inverse_cdf_per_second": rate(inverse_cdf, points[: max(1000, 10_000_000 // n_outputs)], spline, rng),
        "opendp_per_second": rate(opendp_selection, points[:2000], spline),
        "seconds_for_tables": tables,
    }


class FloatingPoint:
    """Planar Laplace noise by inverse transforms of 53-bit uniforms: quick, and only nearly the right law."""

    def draw(self, count, source):
        first, second, turn = (((source.words(count) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53 for _ in range(3))
        radius, angle = -np.log(first) - np.log(second), 2 * math.pi * turn
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def noise_rate(noise, chunks, threads, clock):
    """Draws per second of so many chunks; with `thread_time` per second of one thread's processor time."""
    started = clock()
    if threads == 1:
        for _ in range(chunks):
            noise.draw(NOISE_CHUNK, SecureRandom())
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: noise.draw(NOISE_CHUNK, SecureRandom()), range(chunks)))
    return chunks * NOISE_CHUNK / (clock() - started)


def settled_per_draw(noise, draws):
    """How often exact arithmetic had to decide."""
    settle, counted = noise._settle, []  # noqa: SLF001
    noise._settle = lambda *arguments: counted.append(1) or settle(*arguments)  # noqa: SLF001
    for _ in range(draws // NOISE_CHUNK):
        noise.draw(NOISE_CHUNK, SecureRandom())
    noise._settle = settle  # noqa: SLF001
    return len(counted) / draws


def measure_noise(p, n_axes, chunks):
    noise, floating = LatticeNoise(NOISE_RATE, p, n_axes), FloatingPoint()
    runs = [
        (
            noise_rate(noise, chunks, 1, time.thread_time),
            noise_rate(floating, chunks, 1, time.thread_time),
            noise_rate(noise, chunks, os.cpu_count(), time.perf_counter),
            noise_rate(floating, chunks, os.cpu_count(), time.perf_counter),
        )
        for _ in range(5)  # in turns, so that a busy machine is busy for all
    ]
    one, one_floating, all_, all_floating = np.max(runs, axis=0)
    return {
        "p": p,
        "axes": n_axes,
        "per_processor_second_of_one_thread": one,
        "ratio_to_floating_point": one / one_floating,
        "per_second_on_all_cores": all_,
        "ratio_to_floating_point_on_all_cores": all_ / all_floating,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    answers = [measure(n_outputs, arguments.points, rng) for n_outputs in (20, 1000)]
    noises = [measure_noise(p, n_axes, NOISE_CHUNKS) for p, n_axes in NOISES]
    settled = settled_per_draw(LatticeNoise(NOISE_RATE, 2.0, 2), 2**24)
    if arguments.json:
        print(json.dumps({"splines": answers, "noise": noises, "settled_exactly_per_draw": settled}, indent=1))
        return
    for answer in answers:
        exact = answer["exact_per_second"]
        print(
            f"K = {answer['outputs']}: {exact / 1e6:.1f} million exact samples/s "
            f"(tables once, {answer['seconds_for_tables']:.2f} s), "
            f"{exact / answer['numpy_inverse_cdf_per_second']:.1f} times numpy's inverse CDF, "
            f"{exact / answer['opendp_per_second']:.0f} times OpenDP per draw"
        )
    print("noise; floating point is planar Laplace noise, p = 2 with 2 axes, in every line:")
    for answer in noises:
        print(
            f"p = {answer['p']:g}, {answer['axes']} axes: "
            f"{answer['per_processor_second_of_one_thread'] / 1e6:.1f} million draws per processor second "
            f"({answer['ratio_to_floating_point']:.2f} of floating point), "
            f"{answer['per_second_on_all_cores'] / 1e6:.1f} million/s on {os.cpu_count()} cores "
            f"({answer['ratio_to_floating_point_on_all_cores']:.2f})"
        )
    print(f"settled by exact arithmetic: {settled:.1e} of the draws (p = 2, 2 axes)")


if __name__ == "__main__":
    main()
