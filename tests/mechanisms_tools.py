"""What tests of several mechanisms share."""

import numpy as np

from metricdp.mechanisms.aipo.mechanism import LogConvex


def hand_made(grid, log_table, epsilon=1.0, p=2.0):
    rng = np.random.default_rng(0)
    outputs = rng.uniform(*grid.bounds, size=(log_table.shape[1], grid.n_axes))
    return LogConvex(
        outputs=outputs,
        bounds=grid.bounds,
        epsilon=epsilon,
        p=p,
        method="aipo",
        grid=grid,
        log_table=log_table,
    )


def pairs_of_points(grid, count, seed):
    """Random pairs, pairs 1e-6 apart, and pairs on the two sides of cell borders."""
    rng = np.random.default_rng(seed)
    low, high = grid.bounds
    n_axes = grid.n_axes
    left = rng.uniform(low, high, size=(count, n_axes))
    right = rng.uniform(low, high, size=(count, n_axes))
    near = count // 3
    right[:near] = left[:near] + 1e-6 * rng.normal(size=(near, n_axes))
    border = slice(near, 2 * near)
    axis = rng.integers(n_axes, size=near)
    edge = np.array([rng.choice(grid.breakpoints[a]) for a in axis])
    left[border][np.arange(near), axis] = edge
    right[border] = left[border]
    step = 10.0 ** rng.uniform(-6, -1, size=near)
    left[border][np.arange(near), axis] -= step
    right[border][np.arange(near), axis] += step
    return np.clip(left, low, high), np.clip(right, low, high)
