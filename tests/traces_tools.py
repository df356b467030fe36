"""Small movement models, and sums over all paths that say what filter and smoother should be."""

import itertools

import numpy as np

from metricdp.traces import Movement, Raster


def small_movement(seed=0, shape=(3, 3), lags_s=(60,), **options):
    """A model with random prior and kernels that reach from one end of the cells to the other."""
    rng = np.random.default_rng(seed)
    kernels = [rng.uniform(0.1, 1, (2 * shape[0] - 1, 2 * shape[1] - 1)) for _ in lags_s]
    return Movement(
        Raster([-1.0, 2.0], 0.5, shape), rng.uniform(0.1, 1, shape[0] * shape[1]), kernels, lags_s, **options
    )


def transition(movement, seconds):
    """T(x → y) by loops over pairs of cells, from the definition in `Movement`."""
    nx, ny = movement.raster.shape
    lags = (0.0, *movement.lags_s)
    cells = [(i, j) for i in range(nx) for j in range(ny)]
    matrix = np.zeros((nx * ny, nx * ny))
    for x, (i, j) in enumerate(cells):
        for y, (k, m) in enumerate(cells):
            matrix[x, y] = weight(movement, lags, seconds, k - i, m - j) * movement.prior[y] ** movement.exponent
        matrix[x] /= matrix[x].sum()
    beyond = (seconds - lags[-1]) / lags[-1]
    restart = movement.restart * min(1, seconds / movement.lags_s[0])
    restart += (1 - restart) * min(1, max(0, beyond))
    return (1 - restart) * matrix + restart * movement.prior


def weight(movement, lags, seconds, dx, dy):
    """k_t of one displacement: linear in time between the lags, nothing but staying at time 0."""
    values = [float(dx == dy == 0)]
    for kernel in movement.kernels:
        i, j = dx + kernel.shape[0] // 2, dy + kernel.shape[1] // 2
        values.append(kernel[i, j] if 0 <= i < kernel.shape[0] and 0 <= j < kernel.shape[1] else 0.0)
    return np.interp(seconds, lags, values)


def all_paths(movement, log_likelihoods, unix_s):
    """The chance of every path given the reports up to each time and given all of them: (T, cells) twice."""
    n_reports, n_cells = log_likelihoods.shape
    steps = [transition(movement, gap) for gap in np.diff(unix_s)]
    filtered, smoothed = np.zeros((2, n_reports, n_cells))
    for last in range(n_reports):
        for path in itertools.product(range(n_cells), repeat=last + 1):
            chance = movement.prior[path[0]] * np.exp(log_likelihoods[range(last + 1), path].sum())
            for step, (here, there) in zip(steps, itertools.pairwise(path), strict=False):
                chance *= step[here, there]
            filtered[last, path[-1]] += chance
            if last == n_reports - 1:
                smoothed[range(n_reports), path] += chance
    return filtered / filtered.sum(axis=1, keepdims=True), smoothed / smoothed.sum(axis=1, keepdims=True)
