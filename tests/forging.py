"""A kit for forging mechanism files, and a judge that convicts them from the definition alone.

`sealed` writes any header and arrays with a fresh hash, as docs/file-format.md has it. `FORGERS` make up files of every
kind, many of them just inside or just outside what may be claimed. `Judge` reads a header and its arrays, computes
probabilities at two points as they are given (degrees, where there is a projection) in fractions or in decimals of 60
digits, and knows nothing of the library.
"""

import decimal
import hashlib
import io
import itertools
import json
import math
import struct
import zipfile
import zlib
from decimal import Decimal
from fractions import Fraction

import numpy as np
from pyproj import Geod

EARTH_RADIUS_KM = 6371.0
GEOD = Geod(ellps="WGS84")
# What the geodesic library itself may be off by: 15 nanometres, according to its author.
GEOD_ERROR_KM = 2e-11

decimal.getcontext().prec = 60


# ---------------------------------------------------------------- archives


def parts_of(data):
    """Return the entries of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(parts, method=zipfile.ZIP_DEFLATED):
    """Return an archive of entries, given as pairs so that names may repeat."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as archive:
        for name, content in parts:
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype.kind == "O")
    return buffer.getvalue()


def opened(data):
    """Return the header and the arrays of a sound file."""
    parts = parts_of(data)
    header = json.loads(parts.pop("header.json"))
    return header, {name.removesuffix(".npy"): np.load(io.BytesIO(content)) for name, content in parts.items()}


def renamed(data, name, written, extra=b""):
    """Return an archive in which the entry `name` is called `written`, and has an extra field."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(buffer, "w") as other:
        for entry in archive.namelist():
            info = zipfile.ZipInfo(entry)
            if entry == name:
                info.filename, info.extra = written, extra  # the class itself would cut the name at a zero byte
            other.writestr(info, archive.read(entry))
    return buffer.getvalue()


def another_name(name, other):
    """Return the extra field that gives an entry another name, which Python believes from 3.12 on."""
    content = struct.pack("<BL", 1, zlib.crc32(name.encode())) + other
    return struct.pack("<HH", 0x7075, len(content)) + content


def sealed(header, arrays):
    """Return the file of a header and arrays with the right hash, as docs/file-format.md has it."""
    blank = {} if header.get("format") == 1 else {"sha256": "0" * 64}
    text = json.dumps(header | blank, indent=1, sort_keys=True) + "\n"
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{name} {little.dtype.str} {','.join(map(str, array.shape))}\n".encode() + little.tobytes())
    text = text.replace(f'"sha256": "{"0" * 64}"', f'"sha256": "{digest.hexdigest()}"')
    return archive_of([("header.json", text), *((f"{name}.npy", npy(array)) for name, array in arrays.items())])


# ---------------------------------------------------------------- forgers


def header_of(kind, method, epsilon, p, box, projection=None, ground=False, settings=None, grid=None, number=3):
    """Return a header that contradicts nothing but, perhaps, the truth."""
    header = {
        "format": number,
        "kind": kind,
        "method": method,
        "epsilon": repr(float(epsilon)),
        "p": "inf" if math.isinf(p) else repr(float(p)),
        "box": np.asarray(box, dtype=float).tolist(),
        "projection": projection,
        "units": None if projection is None else "km",
        "grid": grid,
        "library": "0.1.0",
        "certificate": None,
        "report": {},
        "settings": settings or {},
    }
    if number >= 3:
        header["distance"] = "ground" if ground else "plane"
    return header


def centred(lon, lat):
    return {"kind": "equirectangular", "lon_deg": float(lon), "lat_deg": float(lat), "radius_km": EARTH_RADIUS_KM}


def a_place(rng, n_axes, sides):
    """Return a box with a projection or without: honest ones, moved centres, high latitudes, the antimeridian."""
    choice = rng.integers(8) if n_axes == 2 else 0
    if choice <= 2:
        low = rng.choice([0.0, -sides[0] / 2, 3.0])
        return np.array([[low] * n_axes, low + sides]), None
    lon = float(rng.choice([12.5, -0.1, 180.0, -179.9999, 24.9]))
    lat = float(rng.choice([0.0, 41.9, 51.5, -33.0, 60.2, 78.2]))
    middle = np.zeros(2)
    if choice >= 6:  # the centre is elsewhere, so the map is stretched where the box is
        away = float(rng.choice([5.0, 20.0, 41.9, -30.0]))
        middle[1], lat = away * math.pi / 180 * EARTH_RADIUS_KM, max(-80.0, min(80.0, lat - away))
        if rng.random() < 0.3:  # the box is about the meridian opposite the centre, where longitudes wrap
            opposite = math.pi * EARTH_RADIUS_KM * math.cos(math.radians(lat))
            middle[0] = float(rng.choice([-1, 1])) * (opposite - float(rng.choice([0.0, 0.5, 1.0, 3.0])) * sides[0])
    return np.array([middle - sides / 2, middle + sides / 2]), centred(lon, lat)


def on_lattice(box, step):
    return np.array([np.floor(box[0] / step), np.ceil(box[1] / step)]) * step


def nudge(rng):
    """Return a factor that is 1, a hair beside it, or well beside it."""
    return float(rng.choice([1.0, 1 + 1e-12, 1 - 1e-12, 1 + 1e-6, 1 - 1e-6, 1.002, 0.998, 1.05, 0.9, 2.0, 0.5]))


def dual(p):
    return math.inf if p == 1 else 1.0 if math.isinf(p) else p / (p - 1)


def size(vector, p):
    vector = np.abs(np.asarray(vector, dtype=float))
    largest = float(vector.max())
    if math.isinf(p) or largest == 0:
        return largest
    return largest * float(((vector / largest) ** p).sum() ** (1 / p))


def forge_spline(rng):
    """Random control rows, with ε about what their slopes need."""
    n_axes, degree, n_outputs = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    cells = rng.integers(1, 4, n_axes)
    sides = rng.choice([0.5, 4.0, 30.0]) * np.ones(n_axes)
    p = float(rng.choice([1.0, 2.0, math.inf, 3.0]))
    finest = min(2.0**-20, 2.0 ** (math.floor(math.log2(sides.min())) - 20))
    step = finest * float(rng.choice([1, 1, 1, 1, 0.5, 2, 2**10, 2**18]))
    box, projection = a_place(rng, n_axes, sides)
    box = on_lattice(box, step)
    breaks = [np.round(np.linspace(low, high, n + 1) / step) * step for low, high, n in zip(*box, cells, strict=True)]
    shape = tuple(degree * n + 1 for n in cells)
    total = n_outputs << 40
    rows = 1 + rng.random((math.prod(shape), n_outputs)) * rng.choice([0.02, 0.3, 2.0])
    weights = np.floor(rows / rows.sum(axis=1, keepdims=True) * total).astype(np.int64)
    weights[:, 0] += total - weights.sum(axis=1)
    steepest = spline_slope(breaks, degree, weights, p)
    ground = projection is not None and rng.random() < 0.6
    epsilon = steepest * nudge(rng) * float(rng.choice([1.0, 1.0, 1.002, 1.01, 1.4]))
    settings = {"degree": degree, "step": step}
    grid = {"cells": [int(n) for n in cells], "degree": degree}
    arrays = {"outputs": box[0] + (box[1] - box[0]) * rng.random((n_outputs, n_axes)), "table": weights}
    arrays |= {f"breakpoints_{axis}": points for axis, points in enumerate(breaks)}
    number = 3 if ground or rng.random() < 0.5 else 2
    return header_of("spline", "spline", epsilon, p, box, projection, ground, settings, grid, number), arrays


def forge_sparse_spline(rng):
    """Sparse rows with lonely extras, at borders and corners too, a floor from 1 to the largest, ε about what is needed."""
    n_axes, degree, n_outputs = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5, 40]))
    cells = rng.integers(1, {1: 9, 2: 4, 3: 2}[n_axes], n_axes)
    sides = rng.choice([0.5, 4.0, 30.0]) * np.ones(n_axes)
    p = float(rng.choice([1.0, 2.0, math.inf, 3.0]))
    step = min(2.0**-20, 2.0 ** (math.floor(math.log2(sides.min())) - 20)) * float(rng.choice([1, 1, 0.5]))
    box, projection = a_place(rng, n_axes, sides)
    box = on_lattice(box, step)
    breaks = [np.round(np.linspace(low, high, n + 1) / step) * step for low, high, n in zip(*box, cells, strict=True)]
    n_sites = math.prod(degree * n + 1 for n in cells)
    extras = np.zeros((n_sites, n_outputs), dtype=np.int64)
    extras[:, rng.integers(n_outputs)] = 2**50
    for _ in range(int(rng.choice([0, 1, 2, n_sites]))):  # some of a site's extra goes to other outputs
        site = int(rng.choice([0, n_sites - 1, rng.integers(n_sites)]))
        giver, taker = int(extras[site].argmax()), int(rng.integers(n_outputs))
        units = min(int(2 ** rng.uniform(0, 50)), int(extras[site, giver]))
        extras[site, giver] -= units
        extras[site, taker] += units
    floor = max(1, int(float(rng.choice([2.0**-45, 2.0**-20, 0.01, 1.0])) * ((2**53 - 2**50) // n_outputs)))
    steepest = spline_slope(breaks, degree, extras + floor, p)
    ground = projection is not None and rng.random() < 0.6
    epsilon = max(steepest, 1e-9) * nudge(rng) * float(rng.choice([1.0, 1.0, 1.002, 1.01, 1.4]))
    present = extras > 0
    arrays = {
        "outputs": box[0] + (box[1] - box[0]) * rng.random((n_outputs, n_axes)),
        "counts": present.sum(axis=1).astype(np.uint16),
        "columns": np.nonzero(present)[1].astype(np.uint16),
        "extras": extras[present],
    }
    arrays |= {f"breakpoints_{axis}": points for axis, points in enumerate(breaks)}
    grid = {"cells": [int(n) for n in cells], "degree": degree}
    settings = {"degree": degree, "step": step, "floor": floor}
    return header_of("spline", "spline", epsilon, p, box, projection, ground, settings, grid), arrays


def spline_slope(breaks, degree, weights, p):
    """Return the steepest ‖g‖_q / b over the sites of all cells, from the theorem."""
    shape = tuple(degree * (len(points) - 1) + 1 for points in breaks)
    table = weights.reshape((*shape, -1)).astype(float)
    worst = 0.0
    for cell in itertools.product(*(range(len(points) - 1) for points in breaks)):
        for site in itertools.product(range(degree + 1), repeat=len(breaks)):
            at = tuple(degree * i + a for i, a in zip(cell, site, strict=True))
            slopes = []
            for axis, (i, a) in enumerate(zip(cell, site, strict=True)):
                ahead = tuple(n + (k == axis) for k, n in enumerate(at))
                behind = tuple(n - (k == axis) for k, n in enumerate(at))
                rise = 0.0
                if a < degree:
                    rise = rise + (degree - a) * (table[ahead] - table[at])
                if a > 0:
                    rise = rise + a * (table[at] - table[behind])
                slopes.append(rise / (breaks[axis][i + 1] - breaks[axis][i]))
            for k in range(table.shape[-1]):
                worst = max(worst, size([slope[k] for slope in slopes], dual(p)) / table[at][k])
    return worst


def forge_log_convex(rng):
    """Random anchor tables, with ε about what their slopes need."""
    n_axes, n_outputs = int(rng.integers(1, 3)), int(rng.integers(2, 5))
    cells = rng.integers(1, 4, n_axes)
    box, projection = a_place(rng, n_axes, rng.choice([0.5, 4.0, 30.0]) * np.ones(n_axes))
    p = float(rng.choice([1.0, 2.0, math.inf]))
    breaks = [np.linspace(low, high, n + 1) for low, high, n in zip(*box, cells, strict=True)]
    logs = rng.normal(size=(*(n + 1 for n in cells), n_outputs)) * rng.choice([0.1, 1.0])
    slopes = [
        float(np.abs(np.diff(logs, axis=axis)).max()) / float(np.diff(points).min())
        for axis, points in enumerate(breaks)
    ]
    ground = projection is not None and rng.random() < 0.6
    epsilon = 2 * size(slopes, dual(p)) * nudge(rng) * float(rng.choice([0.6, 0.8, 1.0, 1.0, 1.05]))
    arrays = {
        "outputs": box[0] + (box[1] - box[0]) * rng.random((n_outputs, n_axes)),
        "log_table": logs.reshape(-1, n_outputs),
    }
    arrays |= {f"breakpoints_{axis}": points for axis, points in enumerate(breaks)}
    grid = {"cells": [int(n) for n in cells]}
    number = 3 if ground or rng.random() < 0.5 else 2
    return header_of("log-convex", "aipo", epsilon, p, box, projection, ground, {}, grid, number), arrays


def forge_exponential(rng):
    n_axes, n_outputs = int(rng.integers(1, 4)), int(rng.integers(2, 7))
    box, projection = a_place(rng, n_axes, rng.choice([0.5, 4.0, 300.0]) * np.ones(n_axes))
    p = float(rng.choice([1.0, 2.0, math.inf, 1.5]))
    ground = projection is not None and rng.random() < 0.6
    epsilon = float(10.0 ** rng.uniform(-2, 2))
    rate = epsilon / 2 * nudge(rng) / float(rng.choice([1.0, 1.01]))
    labels = rng.integers(0, n_outputs, n_outputs) if rng.random() < 0.3 else np.arange(n_outputs)
    clip = float(rng.choice([0.0, 0.3, 5.0])) if rng.random() < 0.3 else None
    outputs = box[0] + (box[1] - box[0]) * rng.uniform(-1, 2, (n_outputs, n_axes))
    arrays = {"outputs": outputs, "labels": labels.astype(np.int64)}
    number = 3 if ground or rng.random() < 0.5 else 2
    settings = {"rate": rate, "clip": clip}
    return header_of("exponential", "em", epsilon, p, box, projection, ground, settings, None, number), arrays


def forge_laplace(rng):
    n_axes, n_outputs = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    box, projection = a_place(rng, n_axes, rng.choice([0.5, 4.0, 300.0]) * np.ones(n_axes))
    p = float(rng.choice([1.0, 2.0, math.inf, 1.5]))
    ground = projection is not None and rng.random() < 0.6
    epsilon = float(10.0 ** rng.uniform(-3, 3))
    rate = epsilon * nudge(rng) / float(rng.choice([1.0, 1.01]))
    corners = np.array(list(itertools.product(*box.T)))
    if n_axes == 2 and math.isinf(p):
        corners = corners @ np.array([[0.5, 0.5], [0.5, -0.5]])
    margin = float(rng.choice([0.5, 1.0, 5.0])) / rate
    window = np.array([corners.min(axis=0) - margin, corners.max(axis=0) + margin])
    labels = rng.integers(0, n_outputs, rng.integers(1, 5, n_axes)).astype(np.int64)
    arrays = {
        "outputs": box[0] + (box[1] - box[0]) * rng.random((n_outputs, n_axes)),
        "window": window,
        "labels": labels,
    }
    grid = {"cells": list(labels.shape)}
    number = 3 if ground or rng.random() < 0.5 else 2
    settings = {"rate": rate}
    return header_of("lattice-laplace", "laplace", epsilon, p, box, projection, ground, settings, grid, number), arrays


def forge_cellwise(rng):
    """Equal rows, or rows that differ in the last bit, or plainly different ones."""
    n_axes, n_outputs = int(rng.integers(1, 3)), int(rng.integers(2, 5))
    cells = rng.integers(1, 4, n_axes)
    box, projection = a_place(rng, n_axes, rng.choice([0.5, 4.0, 30.0]) * np.ones(n_axes))
    row = rng.random(n_outputs)
    table = np.tile(row / row.sum(), (math.prod(cells), 1))
    damage = rng.integers(3)
    if damage == 1:
        table[-1, 0] = np.nextafter(table[-1, 0], 0)
    elif damage == 2:
        table[-1] = np.roll(table[-1], 1)
    ground = projection is not None and rng.random() < 0.6
    breaks = [np.linspace(low, high, n + 1) for low, high, n in zip(*box, cells, strict=True)]
    arrays = {"outputs": box[0] + (box[1] - box[0]) * rng.random((n_outputs, n_axes)), "table": table}
    arrays |= {f"breakpoints_{axis}": points for axis, points in enumerate(breaks)}
    grid = {"cells": [int(n) for n in cells]}
    number = 3 if ground or rng.random() < 0.5 else 2
    p = float(rng.choice([1.0, 2.0, math.inf]))
    return header_of("cellwise", "lp", rng.uniform(0.1, 5), p, box, projection, ground, {}, grid, number), arrays


FORGERS = {
    "spline": forge_spline,
    "sparse spline": forge_sparse_spline,
    "log-convex": forge_log_convex,
    "exponential": forge_exponential,
    "lattice-laplace": forge_laplace,
    "cellwise": forge_cellwise,
}


# ---------------------------------------------------------------- the judge


class Judge:
    """Computes, from a header and its arrays, how much likelier a report is from one point than from another."""

    def __init__(self, header, arrays):
        self.header, self.arrays = header, arrays
        self.p = math.inf if header["p"] == "inf" else float(header["p"])
        self.box = np.array(header["box"])
        self.projection = header["projection"]
        self.step = self._lattice_step()

    def _lattice_step(self):
        """Return the lattice that docs/file-format.md says inputs are rounded to; None if they are not."""
        sides = self.box[1] - self.box[0]
        own = min(2.0**-20, 2.0 ** (math.frexp(float(sides.min()))[1] - 1 - 20))
        kind = self.header["kind"]
        if kind == "spline":
            return self.header["settings"]["step"]
        if kind == "log-convex":
            return own
        if kind in ("lattice-laplace", "noise"):
            return min(own, 2.0 ** (math.frexp(2.0**-16 / self.header["settings"]["rate"])[1] - 1))
        return None

    # Points, as they are given and as the mechanism sees them.

    def degrees(self, plane):
        """Return the degrees of plane points, for making up points as given."""
        if self.projection is None:
            return plane
        lon0, lat0 = self.projection["lon_deg"], self.projection["lat_deg"]
        ky = EARTH_RADIUS_KM * math.pi / 180
        kx = ky * math.cos(math.radians(lat0))
        lon = lon0 + plane[:, 0] / kx
        return np.column_stack([(lon + 180) % 360 - 180, lat0 + plane[:, 1] / ky])

    def plane(self, given):
        """Return the plane coordinates of a point as given."""
        if self.projection is None:
            return np.asarray(given, dtype=float)
        lon0, lat0 = self.projection["lon_deg"], self.projection["lat_deg"]
        ky = EARTH_RADIUS_KM * math.pi / 180
        east = given[0] - lon0
        east = east - 360 * round(east / 360) if abs(east) > 180 else east
        return np.array([east * (ky * math.cos(math.radians(lat0))), (given[1] - lat0) * ky])

    def distance(self, here, there):
        """Return the true distance in km, by an independent library, or that of the plane without a projection."""
        if self.projection is None:
            return size(np.asarray(here) - there, self.p)
        return GEOD.inv(here[0], here[1], there[0], there[1])[2] / 1000

    def seen(self, given):
        """Return the point that the mechanism sees: clamped to the box and rounded to the lattice, as fractions."""
        inside = np.clip(self.plane(given), *self.box)
        if self.step is None:
            return [Fraction(float(x)) for x in inside]
        step = Fraction(self.step)
        steps = [round(Fraction(float(x)) / step) for x in inside]
        if self.header["kind"] == "log-convex":
            low = [math.ceil(Fraction(float(x)) / step) for x in self.box[0]]
            high = [math.floor(Fraction(float(x)) / step) for x in self.box[1]]
            steps = [min(max(n, a), b) for n, a, b in zip(steps, low, high, strict=True)]
        return [n * step for n in steps]

    # Probabilities.

    def log_ratio(self, here, there):
        """Return the largest ln(z_k(here) / z_k(there)) over outputs, as a float with many correct digits."""
        kind = self.header["kind"]
        x, y = self.seen(here), self.seen(there)
        if kind == "lattice-laplace":
            # The noisy point itself, of which labels are a function: the ratio reaches e^{rate·d} far away.
            gap = size([float(a - b) for a, b in zip(x, y, strict=True)], self.p)
            return self.header["settings"]["rate"] * gap
        rows = {"spline": self._spline, "log-convex": self._log_convex, "exponential": self._exponential}
        row = rows.get(kind, self._cellwise)
        pairs = zip(row(x), row(y), strict=True)
        return max(_log_ratio(a, b) for a, b in pairs)

    def _spline(self, point):
        m = self.header["settings"]["degree"]
        breaks = [self.arrays[f"breakpoints_{axis}"] for axis in range(len(point))]
        shape = tuple(m * (len(points) - 1) + 1 for points in breaks)
        weights = []
        for x, points in zip(point, breaks, strict=True):
            cell = min(max(int(np.searchsorted(points, float(x), side="right")) - 1, 0), len(points) - 2)
            left, right = Fraction(float(points[cell])), Fraction(float(points[cell + 1]))
            u = (x - left) / (right - left)
            weights.append([(m * cell + a, math.comb(m, a) * u**a * (1 - u) ** (m - a)) for a in range(m + 1)])
        table = self._weights().reshape((*shape, -1))
        row = [Fraction(0)] * table.shape[-1]
        for corner in itertools.product(*weights):
            share = math.prod((w for _, w in corner), start=Fraction(1))
            entry = table[tuple(n for n, _ in corner)]
            row = [total + share * int(weight) for total, weight in zip(row, entry, strict=True)]
        return row

    def _weights(self):
        """Return the integer weights of a spline, of a sparse one entry by entry."""
        if "table" in self.arrays:
            return self.arrays["table"]
        counts = self.arrays["counts"].tolist()
        weights = np.full((len(counts), len(self.arrays["outputs"])), self.header["settings"]["floor"])
        entries = iter(zip(self.arrays["columns"].tolist(), self.arrays["extras"].tolist(), strict=True))
        for site, count in enumerate(counts):
            for column, extra in itertools.islice(entries, count):
                weights[site, column] += extra
        return weights

    def _log_convex(self, point):
        breaks = [self.arrays[f"breakpoints_{axis}"] for axis in range(len(point))]
        logs = self.arrays["log_table"].reshape((*(len(points) for points in breaks), -1))
        weights = []
        for x, points in zip(point, breaks, strict=True):
            cell = min(max(int(np.searchsorted(points, float(x), side="right")) - 1, 0), len(points) - 2)
            left, right = Fraction(float(points[cell])), Fraction(float(points[cell + 1]))
            u = (x - left) / (right - left)
            weights.append([(cell, 1 - u), (cell + 1, u)])
        mean = [Fraction(0)] * logs.shape[-1]
        for corner in itertools.product(*weights):
            share = math.prod((w for _, w in corner), start=Fraction(1))
            entry = logs[tuple(n for n, _ in corner)]
            mean = [total + share * Fraction(float(value)) for total, value in zip(mean, entry, strict=True)]
        return _normalised([_decimal(value).exp() for value in mean])

    def _exponential(self, point):
        rate, clip = _decimal(Fraction(self.header["settings"]["rate"])), self.header["settings"]["clip"]
        drawn = []
        for output in self.arrays["outputs"]:
            gap = _size([abs(_decimal(x - Fraction(float(y)))) for x, y in zip(point, output, strict=True)], self.p)
            gap = gap if clip is None else min(gap, Decimal(clip))
            drawn.append((-rate * gap).exp())
        drawn = _normalised(drawn)
        labels = self.arrays["labels"].tolist()
        used = sorted(set(labels))
        return [sum(z for z, label in zip(drawn, labels, strict=True) if label == k) for k in used]

    def _cellwise(self, point):
        number = 0
        for axis, x in enumerate(point):
            points = self.arrays[f"breakpoints_{axis}"]
            cell = min(max(int(np.searchsorted(points, float(x), side="right")) - 1, 0), len(points) - 2)
            number = number * (len(points) - 1) + cell
        return [Fraction(float(z)) for z in self.arrays["table"][number]]

    # Pairs of points that are worth a look.

    def pairs(self, rng, count):
        """Return pairs of points as given: anywhere, near, and across lattice lines, cell borders and corners."""
        low, high = self.box
        n_axes, sides = len(low), high - low
        here = low + sides * rng.random((count, n_axes))
        lengths = 10.0 ** rng.uniform(-9, 0, (count, 1))
        there = here + sides * lengths * rng.normal(size=(count, n_axes))
        lines = [self.arrays.get(f"breakpoints_{axis}", self.box[:, axis]) for axis in range(n_axes)]
        for i in range(0, count, 3):  # on the two sides of a border
            axis = int(rng.integers(n_axes))
            edge = float(rng.choice(lines[axis]))
            hair = 10.0 ** rng.uniform(-9, -2) * sides[axis]
            there[i] = here[i]
            here[i, axis], there[i, axis] = edge - hair, edge + hair
        for i in range(1, count, 3):  # on the two sides of a lattice line
            step = self.step or 2.0**-20
            middle = (np.round(here[i] / step) + 0.5) * step
            hair = 10.0 ** rng.uniform(-6, -1) * min(step, 1e-6)
            here[i], there[i] = middle - hair, middle + hair
        return self.degrees(np.clip(here, low, high)), self.degrees(np.clip(there, low, high))


def _log_ratio(here, there):
    """Return ln(here / there) from fractions or decimals, without cancellation."""
    if here == there:
        return 0.0
    if there == 0:
        return math.inf
    if here == 0:
        return -math.inf
    change = float((here - there) / there)
    return math.log1p(change) if abs(change) < 0.5 else float(_decimal(here / there).ln())


def _decimal(value):
    return value if isinstance(value, Decimal) else Decimal(value.numerator) / Decimal(value.denominator)


def _normalised(weights):
    total = sum(weights)
    return [weight / total for weight in weights]


def _size(vector, p):
    if math.isinf(p):
        return max(vector)
    if p == 1:
        return sum(vector)
    if p == 2:
        return sum(x * x for x in vector).sqrt()
    total = sum((Decimal(p) * x.ln()).exp() for x in vector if x > 0)
    return (total.ln() / Decimal(p)).exp() if total else Decimal(0)
