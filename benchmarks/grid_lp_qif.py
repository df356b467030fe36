"""Time of the optimal discrete mechanism against libqif (`pip install qif`), on unit k x k grids.

Run: python benchmarks/grid_lp_qif.py [k ...]      (6 and 7 by default)
"""

from __future__ import annotations

import sys
import time

import numpy as np
import qif

from metricdp.optimise.lazy_constraints import optimal_discrete

EPSILON = 0.7


def timed(work):
    started = time.perf_counter()
    answer = work()
    return answer, time.perf_counter() - started


def main(sizes):
    print(f"{'k':>3} {'ours':>12} {'qif':>12} {'ours s':>8} {'qif s':>8} {'ratio':>7}")
    for k in sizes:
        points = np.array([(i % k, i // k) for i in range(k * k)], dtype=float)
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        found, ours = timed(lambda points=points: optimal_discrete(points, points, epsilon=EPSILON))
        table, theirs = timed(
            lambda k=k, apart=apart: qif.mechanism.d_privacy.min_loss_given_d(
                qif.probab.uniform(k * k), k * k, lambda a, b: EPSILON * apart[a, b], lambda a, b: apart[a, b]
            )
        )
        loss = float((table * apart).sum()) / k**2
        print(f"{k:3d} {found.value:12.6f} {loss:12.6f} {ours:8.2f} {theirs:8.2f} {theirs / ours:7.1f}")


if __name__ == "__main__":
    main([int(k) for k in sys.argv[1:]] or [6, 7])
