"""Exact noise on the lattice per second, against Laplace noise in floating point, in one run."""

import argparse
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from metricdp.lattice_noise import LatticeNoise
from metricdp.randomness import SecureRandom

RATE, CHUNK = 2.0**-20, 2**15


class FloatingPoint:
    """Planar Laplace noise by inverse transforms of 53-bit uniforms: quick, and only nearly the right law."""

    def draw(self, count, source):
        first, second, turn = (((source.words(count) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53 for _ in range(3))
        radius, angle = -np.log(first) - np.log(second), 2 * math.pi * turn
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def rate(noise, chunks, threads, clock):
    """Draws per second of so many chunks; with `thread_time` per second of one thread's processor time."""
    started = clock()
    if threads == 1:
        for _ in range(chunks):
            noise.draw(CHUNK, SecureRandom())
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: noise.draw(CHUNK, SecureRandom()), range(chunks)))
    return chunks * CHUNK / (clock() - started)


def settled_per_draw(noise, draws):
    """How often exact arithmetic had to decide."""
    settle, counted = noise._settle, []  # noqa: SLF001
    noise._settle = lambda *arguments: counted.append(1) or settle(*arguments)  # noqa: SLF001
    for _ in range(draws // CHUNK):
        noise.draw(CHUNK, SecureRandom())
    noise._settle = settle  # noqa: SLF001
    return len(counted) / draws


def measure(p, n_axes, chunks):
    noise, floating = LatticeNoise(RATE, p, n_axes), FloatingPoint()
    runs = [
        (
            rate(noise, chunks, 1, time.thread_time),
            rate(floating, chunks, 1, time.thread_time),
            rate(noise, chunks, os.cpu_count(), time.perf_counter),
            rate(floating, chunks, os.cpu_count(), time.perf_counter),
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
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    cases = [(2.0, 2), (1.0, 2), (math.inf, 2), (1.5, 2), (2.0, 3), (2.0, 1)]
    answers = [measure(p, n_axes, arguments.chunks) for p, n_axes in cases]
    settled = settled_per_draw(LatticeNoise(RATE, 2.0, 2), 2**24)
    if arguments.json:
        print(json.dumps({"cases": answers, "settled_exactly_per_draw": settled}, indent=1))
        return
    print("floating point is planar Laplace noise, p = 2 with 2 axes, in every line")
    for answer in answers:
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
