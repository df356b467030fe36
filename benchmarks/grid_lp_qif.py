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


def against_qif(k):
    """The optimal mechanism on k x k places, ours beside qif's."""
    points = np.array([(i % k, i // k) for i in range(k * k)], dtype=float)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    found, ours = timed(lambda: optimal_discrete(points, points, epsilon=EPSILON))
    table, theirs = timed(
        lambda: qif.mechanism.d_privacy.min_loss_given_d(
            qif.probab.uniform(k * k), k * k, lambda a, b: EPSILON * apart[a, b], lambda a, b: apart[a, b]
        )
    )
    loss = float((table * apart).sum()) / k**2
    return {"ours_s": ours, "peer_s": theirs, "ratio": theirs / ours, "losses_differ_by": found.value / loss - 1}


def main(sizes):
    print(f"{'k':>3} {'ours s':>8} {'qif s':>8} {'ratio':>7} {'losses differ by':>17}")
    for k in sizes:
        row = against_qif(k)
        print(f"{k:3d} {row['ours_s']:8.2f} {row['peer_s']:8.2f} {row['ratio']:7.1f} {row['losses_differ_by']:17.1e}")


if __name__ == "__main__":
    main([int(k) for k in sys.argv[1:]] or [6, 7])
