"""Does the time of a draw tell the cell of its point? Two cells are timed in turns, with former coins and present ones.

The former coins drew 32-bit integers below the cell's side by rejection, so that a side just above a power of two was
drawn again up to half the time. Times are processor times, which favours whoever measures: the machine's other work
does not hide them.
"""

import argparse
import json
import time
from unittest import mock

import numpy as np

from metricdp.drawing.exact_draws import AliasTables
from metricdp.drawing.randomness import SecureRandom, coins_of_ratios
from metricdp.mechanisms.spline import sampler as spline_sampler
from metricdp.mechanisms.spline.sampler import BernsteinSampler

DEGREE, AXES, OUTPUTS = 2, 2, 16

# 5 % of wrong answers either way.
DEVIATIONS = 1.645


def former_coins(source, steps, side):
    bounds = side.astype(np.uint64)
    if int(bounds.max()) > 2**32:
        return former_large(source, bounds) < steps
    product = half_words(source, len(bounds)) * bounds
    again = np.flatnonzero(product.astype(np.uint32) < bounds)
    while len(again := again[product[again].astype(np.uint32) < np.uint64(2**32) % bounds[again]]):
        product[again] = half_words(source, len(again)) * bounds[again]
    return (product >> np.uint64(32)).astype(np.int64) < steps


def half_words(source, count):
    return source.words((count + 1) // 2).view(np.uint32)[:count].astype(np.uint64)


def former_large(source, bounds):
    result = np.empty(len(bounds), dtype=np.int64)
    missing = np.arange(len(bounds))
    while len(missing):
        word, bound = source.words(len(missing)), bounds[missing]
        surplus = (np.uint64(2**64 - 1) % bound + np.uint64(1)) % bound
        good = word <= np.uint64(2**64 - 1) - surplus
        result[missing[good]] = (word[good] % bound[good]).astype(np.int64)
        missing = missing[~good]
    return result


def sampler(sides):
    """A table with these cells along every axis; the rows are uniform."""
    edges = np.concatenate([[0], np.cumsum(sides)]).astype(np.int64)
    rows = (DEGREE * len(sides) + 1) ** AXES
    return BernsteinSampler([edges] * AXES, DEGREE, AliasTables(np.full((rows, OUTPUTS), 2**20, dtype=np.int64)))


def timed(draw, batches, count):
    """Return times in nanoseconds (2, count); which batch comes next is random, as caches and clocks drift."""
    rng, source = np.random.default_rng(0), SecureRandom()
    times = np.empty((2, count))
    for place in range(count):
        for which in rng.permutation(2):
            started = time.thread_time_ns()
            draw(batches[which], source)
            times[which, place] = time.thread_time_ns() - started
    return times[:, count // 20 :]


def separation(times):
    """Return how many timed draws tell the two apart by counting those above the best threshold, and if that was seen.

    Where nothing was seen, the number is for the largest difference that could have been missed.
    """
    half = times.shape[1] // 2
    grid = np.quantile(times[:, :half], np.linspace(0.01, 0.99, 99))
    shares = (times[:, :half, None] > grid).mean(axis=1)
    threshold = grid[np.abs(shares[0] - shares[1]).argmax()]
    # Chosen on one half, judged on the other.
    shares = (times[:, half:] > threshold).mean(axis=1)
    spreads = np.sqrt(shares * (1 - shares))
    difference, error = abs(shares[0] - shares[1]), 3 * np.sqrt((spreads**2).sum() / half)
    seen = bool(difference > error)
    return (DEVIATIONS * spreads.sum() / max(difference, error)) ** 2, seen


def compare(name, sides, points, count):
    """Time two batches of points, given as cells along the axes, with the former coins and the present ones."""
    table = sampler(sides)
    edges = table.breakpoints[0]
    batches = [edges[cells] + sides[cells] // 3 for cells in (np.asarray(cells) for cells in points)]
    answers = []
    for coins, label in ((former_coins, "former"), (coins_of_ratios, "present")):
        with mock.patch.object(spline_sampler, "coins_of_ratios", coins):
            times = timed(table.draw, batches, count)
        draws, seen = separation(times)
        middle = np.median(times, axis=1) / 1000
        answers.append({"case": name, "coins": label, "us": middle.tolist(), "draws": draws, "seen": seen})
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="timed draws of each cell")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    one, other = [[0, 0]], [[1, 1]]
    mixed = [[0, 0]] * 999
    answers = [
        *compare(
            "one point, sides 2^31 - 1 and 2^31 + 1", np.array([2**31 - 1, 2**31 + 1]), [one, other], arguments.count
        ),
        *compare(
            "one point, sides 2^21 - 1 and 2^21 + 1", np.array([2**21 - 1, 2**21 + 1]), [one, other], arguments.count
        ),
        *compare("one point, sides 2^21 and 2^21", np.array([2**21, 2**21]), [one, other], arguments.count),
        *compare(
            "1,000 points, the last in a side of 2^21 or of 2^33",
            np.array([2**21, 2**33]),
            [[*mixed, [0, 0]], [*mixed, [1, 1]]],
            arguments.count // 10,
        ),
    ]
    if arguments.json:
        print(json.dumps(answers, indent=1))
        return
    for answer in answers:
        first, second = answer["us"]
        verdict = f"{answer['draws']:,.0f} draws tell" if answer["seen"] else f"more than {answer['draws']:,.0f} would"
        print(f"{answer['case']:52} {answer['coins']:8} {first:7.1f} us {second:7.1f} us   {verdict}")


if __name__ == "__main__":
    main()
