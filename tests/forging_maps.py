"""Forged splines with a map of ε: values about what each cell's slopes need, borders mostly where they may be."""

import itertools

import numpy as np

from forging import forge_sparse_spline, forge_spline, nudge


def forge_elastic(rng):
    """Return the header and arrays of a forged spline whose ε varies, by as little as a hair or a lot."""
    header, arrays = (forge_spline if rng.random() < 0.6 else forge_sparse_spline)(rng)
    header["format"], header["distance"] = 3, header.get("distance", "plane")
    epsilon = float(header["epsilon"])
    breaks = [arrays[f"breakpoints_{axis}"] for axis in range(len(header["box"][0]))]
    borders = [
        np.concatenate([points[:1], points[1:-1][rng.random(len(points) - 2) < 0.7], points[-1:]]) for points in breaks
    ]
    if rng.random() < 0.1:  # a border that the spline's cells do not have
        borders[0] = np.insert(borders[0], 1, (borders[0][0] + borders[0][1]) / 2)
    values = epsilon * rng.choice([1.0, 1.0, 1 - 1e-12, 0.999, 0.9, 0.5], tuple(len(points) - 1 for points in borders))
    values *= np.where(rng.random(values.shape) < 0.3, nudge(rng), 1.0)
    values.flat[int(rng.integers(values.size))] = values.max()
    if rng.random() < 0.9:
        header["epsilon"] = repr(float(values.max()))
    arrays |= {f"epsilon_breakpoints_{axis}": points for axis, points in enumerate(borders)}
    arrays["epsilon_values"] = values
    if rng.random() < 0.8:
        join(arrays, len(borders))
    return header, arrays


def join(arrays, n_axes):
    """Leave out borders between equal neighbours, as files must."""
    for axis in range(n_axes):
        values, name = np.moveaxis(arrays["epsilon_values"], axis, 0), f"epsilon_breakpoints_{axis}"
        new = [0, *(i for i, (one, next_) in enumerate(itertools.pairwise(values), 1) if (one != next_).any())]
        arrays[name] = np.append(arrays[name][new], arrays[name][-1])
        arrays["epsilon_values"] = np.ascontiguousarray(np.moveaxis(values[new], 0, axis))
