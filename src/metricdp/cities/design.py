"""From a road network to a design problem: which nodes are outputs and tasks, and what a report costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, checked_box, choice, integer, reject, table, unit_sum
from metricdp.cities._checks import IntArray
from metricdp.cities.medoids import medoids
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.cells import Cells, cells_over
from metricdp.geometry.lonlat import degrees_of, is_table
from metricdp.problem import Problem

if TYPE_CHECKING:
    from metricdp.cities.network import RoadNetwork

__all__ = ["build_problem", "path_loss"]

# Larger tables would not fit an ordinary machine next to the copies that solvers make.
LARGEST_TABLE_BYTES = 8 * 2**30
# Sizes of the sample that k-medoids looks at; a city's loss is smooth, so more changes little.
CANDIDATES_PER_OUTPUT, FEWEST_CANDIDATES, SAMPLED_RECORDS = 4, 400, 2000
# Rows of the loss filled at once, small enough for a processor cache.
BLOCK_ROWS = 4096


def build_problem(
    city: RoadNetwork,
    outputs: int | ArrayLike | str = 20,
    tasks: int | ArrayLike = 50,
    seed: int = 0,
    p: float = 2,
    *,
    prior: ArrayLike | None = None,
    task_weights: ArrayLike | None = None,
    directed: bool = False,
    choose: str = "random",
    bounds: ArrayLike | None = None,
    output_ids: ArrayLike | None = None,
    output_names: ArrayLike | None = None,
) -> Problem:
    """Return the problem of hiding which node somebody is at, when road distances to tasks matter.

    loss(x, y) = Σ_q w_q · abs(path(x, task_q) − path(y, task_q)) in km: how wrong the estimated travel
    distance is when y is reported for x. Records are all nodes, in file order.

    Parameters
    ----------
    city : RoadNetwork
        A connected network; or one without edges that knows the distances to one task.
    outputs, tasks : int or array
        A number of nodes to draw; or node indices (whole numbers, flat); or places: (m, 2) longitudes and
        latitudes, or a table with such columns. The loss of a place is that of its nearest node; what is reported
        is the place itself. `outputs` may also name cells, "h3:8", "geohash:6" or "square:500m": all cells that hold
        a node. A network without edges has one task: pass ``tasks=1``.
    seed : int
        Seeds ``rng = numpy.random.default_rng(seed)``, which draws, in this order and only where a number
        was asked for: outputs ``rng.choice(n, K, replace=False)``, tasks ``rng.choice(n, Q, replace=False)``.
    p : float
        Order of the norm, in [1, inf].
    prior : (n,) array, optional
        How likely each node is; uniform by default.
    task_weights : (Q,) array, optional
        How much each task counts, scaled to sum to 1; equal by default.
    directed : bool
        Whether one-way streets bind; path(x, task) then leads from x to the task.
    choose : "random" or "medoids"
        How outputs are chosen. "medoids" draws outputs and tasks as above, so that both choices face the
        same tasks; it then draws candidates and a sample of records from the same generator and replaces
        the outputs by k-medoids of the loss.
    bounds : (2, 2) array, optional
        The box in km that the guarantee covers; the nodes' bounding box by default.
    output_ids, output_names : (K,) sequences, optional
        What the outputs are called, see `Problem`; only for outputs that are given one by one.
    """
    choice("choose", choose, ("random", "medoids"))
    rng = np.random.default_rng(integer("seed", seed, 0))
    if isinstance(outputs, str):
        cells = _cells(city, outputs, bounds)
        outputs, output_ids = cells.lonlat, cells.ids if output_ids is None else output_ids
    elif is_table(outputs) or _as_array("outputs", outputs).ndim == 2:
        outputs = degrees_of("outputs", outputs)
    said = _pick_nodes("outputs", city, outputs, rng)
    if choose == "medoids" and np.ndim(outputs) > 0:
        raise reject("choose", "'random' when `outputs` are given one by one", repr(choose))
    for name, given in (("output_ids", output_ids), ("output_names", output_names)):
        if given is not None and np.ndim(outputs) == 0:
            raise reject(name, "left out unless `outputs` are given one by one", f"{name} for outputs that are drawn")
    distance = _task_distances(city, tasks, rng, directed=directed)
    weights = _weights("task_weights", task_weights, len(distance))
    mass = _weights("prior", prior, city.n_nodes)
    if choose == "medoids":
        said = _medoid_nodes(distance, weights, mass, len(said), rng)
    _refuse_too_large("outputs", len(said), city.n_nodes)
    loss = path_loss(distance, weights, said)
    own = np.ndim(outputs) == 2
    reported = city.projection.to_xy_km(*np.transpose(outputs)) if own else city.xy[said]
    return Problem(
        city.xy, reported, loss, mass, p, bounds, output_ids, output_names,
        projection=city.projection, loss_unit="km",
    )  # fmt: skip


def _cells(city: RoadNetwork, spec: str, bounds: ArrayLike | None) -> Cells:
    corner = city.xy.min(axis=0) if bounds is None else checked_box(bounds)[0]
    return cells_over(np.column_stack([city.lon, city.lat]), city.projection, corner, spec)


def path_loss(distance_km: FloatArray, weights: FloatArray, outputs: IntArray) -> FloatArray:
    """Return (n, K): Σ_q w_q · abs(d[q, x] − d[q, y_k]), in bounded memory.

    Parameters
    ----------
    distance_km : (Q, n) array
        Road distance between every task and every node.
    weights : (Q,) array
        Weight of each task.
    outputs : (K,) integers
        Node indices of the outputs.
    """
    loss = np.zeros((distance_km.shape[1], len(outputs)))
    for start in range(0, len(loss), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        for weight, row in zip(weights, distance_km, strict=True):
            loss[rows] += weight * np.abs(row[rows, None] - row[outputs])
    return loss


def _pick_nodes(name: str, city: RoadNetwork, wanted: int | ArrayLike, rng: np.random.Generator) -> IntArray:
    array = _as_array(name, wanted)
    if array.ndim == 0:
        count = integer(name, wanted, 1)
        if count > city.n_nodes:
            raise reject(name, f"at most the number of nodes of {city.name!r}, {city.n_nodes}", count)
        return rng.choice(city.n_nodes, count, replace=False)
    if array.ndim == 1 and array.dtype.kind in "iu" and len(array):
        outside = np.flatnonzero((array < 0) | (array >= city.n_nodes))
        if len(outside):
            got = f"{array[outside[0]]} at index {outside[0]}"
            raise reject(name, f"node indices from 0 to {city.n_nodes - 1}", got)
        return array.astype(np.int64)
    if array.ndim != 2:
        rule = "a number, a flat array of node indices or an (m, 2) array of longitudes and latitudes"
        raise reject(name, rule, f"{array.dtype} of shape {array.shape}")
    return _nearby_nodes(name, city, table(name, array, columns=2))


def _as_array(name: str, wanted: int | ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(wanted)
    except ValueError:  # rows of different lengths
        raise reject(name, "a number or an array", type(wanted).__name__) from None


def _nearby_nodes(name: str, city: RoadNetwork, lonlat: FloatArray) -> IntArray:
    """Return the node nearest to each point; refuse points far outside the city."""
    xy = city.projection.to_xy_km(lonlat[:, 0], lonlat[:, 1])
    low, high = city.xy.min(axis=0), city.xy.max(axis=0)
    # A point a whole city away is a mistake (swapped columns, another city) and has no node that could stand for it.
    far = np.flatnonzero(((xy < low - (high - low)) | (xy > high + (high - low))).any(axis=1))
    if len(far):
        centre = f"{city.projection.lon_deg:.3f}, {city.projection.lat_deg:.3f}"
        rule = f"longitude, latitude pairs in or near {city.name!r} (centre {centre})"
        raise reject(name, rule, f"one far away in row {far[0]}")
    return city.nearest_nodes(lonlat)


def _task_distances(
    city: RoadNetwork, tasks: int | ArrayLike, rng: np.random.Generator, *, directed: bool
) -> FloatArray:
    """Return (Q, n) km between every node and every task, all finite."""
    if city.n_edges == 0:
        return _known_task_distances(city, tasks, rng)
    nodes = _pick_nodes("tasks", city, tasks, rng)
    _refuse_too_large("tasks", len(nodes), city.n_nodes)
    distance = city.distances_km(nodes, directed=directed, reverse=True)
    lost = ~np.isfinite(distance)
    if lost.any():
        unreached, stranded = int(lost.any(axis=1).sum()), int(lost.any(axis=0).sum())
        fix = "pass `directed=False`" if directed else "use `city.largest_component()`"
        message = (
            f"`tasks` must be within reach of every node of {city.name!r}, got {unreached} of {len(nodes)} "
            f"tasks out of reach of some node and {stranded} of {city.n_nodes} nodes cut off from some task; "
            f"{fix}."
        )
        raise InvalidInputError(message)
    return distance


def _known_task_distances(city: RoadNetwork, tasks: int | ArrayLike, rng: np.random.Generator) -> FloatArray:
    if city.task_distance_m is None or city.task is None:
        message = f"`city` must have edges or distances to a task, got {city.name!r} with neither."
        raise InvalidInputError(message)
    one = _as_array("tasks", tasks)
    asked = np.array([city.task]) if one.ndim == 0 and one == 1 else _pick_nodes("tasks", city, tasks, rng)
    if not np.array_equal(asked, [city.task]):
        rule = f"1 or [{city.task}], because {city.name!r} has no edges, only the distances to that one task"
        raise reject("tasks", rule, tasks if one.ndim == 0 else f"nodes {asked[:5].tolist()}")
    return city.task_distance_m[None, :] / 1000


def _weights(name: str, values: ArrayLike | None, count: int) -> FloatArray:
    return np.full(count, 1 / count) if values is None else unit_sum(name, values, count)


def _medoid_nodes(
    distance: FloatArray, weights: FloatArray, mass: FloatArray, k: int, rng: np.random.Generator
) -> IntArray:
    n = distance.shape[1]
    candidates = rng.choice(n, min(n, max(CANDIDATES_PER_OUTPUT * k, FEWEST_CANDIDATES)), replace=False)
    if n <= SAMPLED_RECORDS:
        rows, weight = np.arange(n), mass
    else:
        rows, weight = rng.choice(n, SAMPLED_RECORDS, p=mass), np.full(SAMPLED_RECORDS, 1 / SAMPLED_RECORDS)
    nearby = distance[:, np.concatenate([rows, candidates])]
    cost = path_loss(nearby, weights, np.arange(len(rows), nearby.shape[1]))[: len(rows)]
    return np.asarray(candidates[medoids(cost, weight, k)], dtype=np.int64)


def _refuse_too_large(name: str, count: int, n_nodes: int) -> None:
    size = 8 * count * n_nodes
    if size > LARGEST_TABLE_BYTES:
        most = LARGEST_TABLE_BYTES // (8 * n_nodes)
        got = f"{count}, a table of {size / 2**30:.1f} GiB"
        raise ProblemTooLargeError(f"`{name}` must be at most {most} for {n_nodes} nodes, got {got}.")
