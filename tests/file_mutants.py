"""Damaged and forged mechanism files: `python file_mutants.py COUNT SEED` loads so many and prints what came of them.

Every mutant must be refused, be found not to be private, or be a mechanism that certifies and runs. The process may
take only a little more memory than it has when the first mutant is loaded, and a minute for each; a warning counts as
a crash.
"""

import json
import math
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

import metricdp as mdp
from forging import archive_of, npy, opened, parts_of, sealed
from metricdp.files import content_hash
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.gridded.mechanism import Cellwise
from metricdp.mechanisms.spline.sparse_table import SUM_BITS, SparseTable
from problems import random_problem

MEMORY = 2**29
SECONDS = 60
DATA = Path(__file__).parent / "data"
ODD_NUMBERS = [
    0.0,
    -0.0,
    -1.0,
    1.0,
    5e-324,
    1e-300,
    1e-30,
    1e30,
    1e99,
    1e101,
    1e308,
    -1e308,
    math.inf,
    -math.inf,
    math.nan,
]
ODD_VALUES = [
    *ODD_NUMBERS,
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**400),
    *(
        "",
        "0",
        "0.0",
        "-1.0",
        "1.0",
        "2.0",
        "0.1",
        "50.0",
        "300.0",
        "1e5",
        "1e-05",
        "1e999",
        "inf",
        "nan",
        "1_0",
        " 1",
        "0x1",
    ),
    *("em", "spline", "cellwise", "exponential", "log-convex", "km", "[/bold]", "\x1b[2J\x00", "é", "a" * 100_000),
    *([], {}, [[]], [[0.0, 0.0], [1.0, 1.0]], [[1.0], [0.0]], {"a": {"b": 1}}),
]


def base_files(folder):
    """Write one small file of every kind, private or not, and of format 1."""
    city = Equirectangular(24.94, 60.17)
    made = [
        mdp.fit(random_problem(0, n_outputs=4), 0.7, "em"),
        mdp.fit(random_problem(1, n_outputs=3, p=1), 1.0, "tem"),
        mdp.fit(random_problem(2, n_axes=1, n_outputs=4, p=3.0), 1.0, "em-remap"),
        replace(mdp.fit(random_problem(3, n_outputs=3), 2.0, "laplace", squares=8), projection=city),
        mdp.fit(random_problem(4, n_outputs=3, p=math.inf), 2.0, "laplace-remap", squares=8),
        mdp.fit(random_problem(5, n_axes=3, n_outputs=3, p=1), 1.0, "laplace", squares=4),
        mdp.fit(random_problem(6, n_outputs=4), 1.0, "aipo-e", cells=2),
        mdp.fit(random_problem(7, n_axes=1, n_outputs=3), 1.0, "aipo", cells=3),
        mdp.fit(random_problem(8, n_outputs=3), 1.0, "spline", cells=2, degree=2),
        mdp.fit(random_problem(9, n_axes=1, n_outputs=4), 1.0, "spline", cells=3, degree=3),
        mdp.fit(random_problem(10, n_outputs=3), 1.0, "lp", cells=2, certify=False),
    ]
    lp = made[-1]
    made.append(sparse_twin(made[8]))
    fields = {name: getattr(lp, name) for name in ("outputs", "bounds", "epsilon", "p", "grid")}
    made.append(Cellwise(**fields, method="constant", table=np.tile(lp.table[:1], (len(lp.table), 1))))
    made[0] = replace(made[0], output_ids=("a", "b", "c", "é"), output_names=("One", "Two", "", ""))
    made[6] = replace(made[6], output_ids=(7, -1, 2**63 - 1, 0))
    for number, mechanism in enumerate(made):
        report = {"solver": "none", "gap": 1e-6, "splits": [{"loss": 1.0}]}  # no timings: one seed, one set of mutants
        if "certificate" in mechanism.report:
            report["certificate"] = mechanism.report["certificate"] | {"seconds": 0.0}
        replace(mechanism, report=report).save(folder / f"base-{number}.mdp")
    return [*(folder / f"base-{number}.mdp" for number in range(len(made))), *sorted(DATA.glob("*-format-1.zip"))]


def sparse_twin(spline):
    """Return a spline with a sparse table and a large floor: the last output has no extra anywhere."""
    extras = spline.table >> 16
    extras[:, -1] = 0
    extras[:, 0] = 2**SUM_BITS - extras[:, 1:].sum(axis=1)
    present = extras > 0
    columns = np.nonzero(present)[1].astype(np.uint16)
    table = SparseTable(spline.n_outputs, 2**51, present.sum(axis=1).astype(np.uint16), columns, extras[present])
    return replace(spline, table=table, report={})


def flip_bits(data, rng, others):
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data, rng, others):
    return data[: rng.randrange(len(data))]


def splice(data, rng, others):
    other = rng.choice(others)
    start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    begin, end = sorted(rng.randrange(len(other) + 1) for _ in range(2))
    middle = rng.choice([b"", bytes(stop - start), rng.randbytes(rng.randrange(200)), other[begin:end]])
    return data[:start] + middle + data[stop:]


def lie_in_directory(data, rng, others):
    """Change a field of a local header, a directory entry or the end record: sizes, offsets, methods, flags."""
    changed = bytearray(data)
    signature, size = rng.choice([(b"PK\x01\x02", 46), (b"PK\x03\x04", 30), (b"PK\x05\x06", 22)])
    places = [at for at in range(len(data) - size) if data.startswith(signature, at)] or [len(data) - size]
    at = rng.choice(places) + rng.randrange(4, size - 3)
    value = rng.choice([0, 1, 8, 14, 99, 2**16 - 1, 2**31 - 1, 2**32 - 1, rng.randrange(2**32), len(data)])
    struct.pack_into(*rng.choice([("<H", changed, at, value % 2**16), ("<I", changed, at, value)]))
    return bytes(changed)


def shuffle_entries(data, rng, others):
    parts = list(parts_of(data).items())
    other = list(parts_of(rng.choice(others)).items())
    first, second = rng.randrange(len(parts)), rng.randrange(len(parts))
    change = rng.randrange(7)
    if change == 0:
        parts.pop(first)
    elif change == 1:
        (one, mine), (two, yours) = parts[first], parts[second]
        parts[first], parts[second] = (one, yours), (two, mine)
    elif change == 2:
        parts[first] = (rng.choice(["x.npy", "../x.npy", "a" * 300, "x", "header.json", "code.py"]), parts[first][1])
    elif change == 3:
        parts.append((parts[first][0], other[0][1]))
    elif change == 4:
        parts.append(rng.choice(other))
    elif change == 5:
        parts[first] = (parts[first][0], dict(other).get(parts[first][0], b""))
    else:
        return archive_of(parts, rng.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED]))
    return archive_of(parts)


def grow_entry(data, rng, others):
    """Blow up an entry: nothing may be allocated for what cannot be a mechanism."""
    parts = parts_of(data)
    name = rng.choice(list(parts))
    size = 2 ** rng.choice([12] * 6 + [16] * 6 + [20] * 6 + [23] * 3 + [27])
    start = rng.choice([parts[name], parts[name][:128], b""])
    parts[name] = start + rng.choice([b" ", b"[", b"\0"]) * size
    return archive_of(parts.items())


def flip_content(data, rng, others):
    """Flip bits inside an entry, with a right checksum."""
    parts = parts_of(data)
    name = rng.choice(list(parts))
    parts[name] = flip_bits(parts[name], rng, others)
    return archive_of(parts.items())


def edit_text(data, rng, others):
    """Edit the text of an array's header or of the JSON header."""
    parts = parts_of(data)
    name = rng.choice(list(parts))
    edits = [
        (b"<f8", rng.choice([b"|O8", b"<f4", b">f8", b"<i8", b"<c8", b"|V8", b"<U2"])),
        (b"False", rng.choice([b"True ", b"None ", b"1    "])),
        (b"'shape': (", b"'shape': (" + rng.choice([b"0, ", b"1, ", b"-1, ", b"999999999999, ", b"9" * 40 + b", "])),
        (b"}", b"," * 50 + b"}"),
        (b"\x01\x00", rng.choice([b"\x02\x00", b"\x03\x00", b"\x09\x00"])),
        (b'"report": {', b'"report": {"deep": ' + b"[" * 90_000 + b"]" * 90_000 + b","),
        (b'"report": {', b'"report": {"x": ' + b"9" * 5000 + b","),
        (b'"report": {', b'"report": {"x": NaN, "y": -Infinity,'),
        (b'"format": 3', rng.choice([b'"format": 1', b'"format": 3.0', b'"format": true', b'"format": 2'])),
        (b'"epsilon"', b'"epsilon": "0.1", "epsilon"'),
    ]
    old, new = rng.choice([edit for edit in edits if edit[0] in parts[name]])
    parts[name] = parts[name].replace(old, new, 1)
    return archive_of(parts.items())


def forge_header(data, rng, others):
    """Edit fields of the header and hash again."""
    header, arrays = opened(data)
    if rng.random() < 0.7:
        header["certificate"] = None
        header["report"].pop("certificate", None)
    if header["format"] == 1:
        header.pop("certificate", None)
    for _ in range(rng.choice([1, 1, 2])):
        edit_somewhere(header, rng, opened(rng.choice(others))[0])
    return sealed(header, arrays)


def edit_somewhere(tree, rng, other):
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    if not keys:
        return
    key = rng.choice([name for name in keys if name != "sha256"])
    value = tree[key]
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        edit_somewhere(value, rng, other)
    elif rng.random() < 0.1:
        tree.pop(key)
    elif rng.random() < 0.1 and isinstance(tree, dict):
        tree["another"] = value
    elif rng.random() < 0.2 and isinstance(other, dict) and key in other:
        tree[key] = other[key]
    elif isinstance(value, (int, float)) and rng.random() < 0.5:
        tree[key] = value * rng.choice([1.0000001, 0.9999999, 2, 0.5, 10, 1e-3, -1, 1e6])
    else:
        tree[key] = rng.choice(ODD_VALUES)


def forge_arrays(data, rng, others):
    """Edit an array and hash again."""
    header, arrays = opened(data)
    name = rng.choice(list(arrays))
    changed = forged(arrays[name], rng)
    if changed.dtype.kind != "O":
        arrays[name] = changed
        if header.get("grid"):
            breaks = [array for axis, array in sorted(arrays.items()) if axis.startswith("breakpoints")]
            header["grid"]["cells"] = [len(points) - 1 for points in breaks] or list(arrays["labels"].shape)
        return sealed(header, arrays)
    parts = parts_of(data)
    parts[f"{name}.npy"] = npy(changed)
    return archive_of(parts.items())


def forged(array, rng):
    array = array.copy()
    at = np.unravel_index(rng.randrange(array.size), array.shape)
    change = rng.randrange(10)
    if change <= 2:
        array[at] = np.array(rng.choice(ODD_NUMBERS)).astype(array.dtype)
    elif change == 3:
        with np.errstate(invalid="ignore"):  # bytes cannot be negative
            array[at] = (np.float64(array[at]) * rng.choice([1 + 1e-15, 1 - 1e-9, 1.01, 2, -1])).astype(array.dtype)
    elif change == 4:
        where = at if rng.random() < 0.5 else ...
        step = np.asarray(rng.choice([1, -1, 5, 10**6, 10**12]))
        array[where] = (array[where] + step).astype(array.dtype)  # bytes wrap around
    elif change == 5:
        array = (array * rng.choice([0, 0.5, 0.999999, 1.001, 3, 1e6, 1e50])).astype(array.dtype)
    elif change == 6:
        array = array.astype(rng.choice([np.float64, np.int64, np.float32, np.int8, np.complex128, object, np.bool_]))
    elif change == 7:
        array = rng.choice([array.T, array.ravel(), array[None], array[:1], array[:0], array[..., :1], array[::-1]])
    elif change == 8:
        array = np.concatenate([array, array])
    else:
        array = np.zeros_like(array)
    return array


MUTATIONS = [
    *(flip_bits, cut, splice, lie_in_directory, shuffle_entries, grow_entry, flip_content, edit_text),
    *(forge_header, forge_header, forge_header, forge_arrays, forge_arrays, forge_arrays),
]


def outcome(path, known):
    """Load a mutant and say what came of it; anything unexpected is raised."""
    try:
        mechanism = mdp.load(path)
    except mdp.InvalidInputError as error:
        assert str(path) in str(error), error
        assert len(str(error)) < 1000, len(str(error))
        return "refused"
    except mdp.NotCertified:
        return "not certified"
    certificate = mdp.certify(mechanism)
    assert certificate.holds
    # Millimetres in kilometres, or a ratio that is nothing: otherwise the claim would be about hardly any pair.
    millimetres = 4.1 * 2.0**-20 * mechanism.bounds.shape[1] ** (1 / mechanism.p)
    rounding, epsilon = mechanism.rounding, float(mechanism.plane_epsilon)
    assert rounding <= millimetres or rounding * epsilon < 0.01, (mechanism.kind, epsilon, mechanism.p, rounding)
    low, high = mechanism.bounds
    points = np.concatenate([np.random.default_rng(0).uniform(low, high, size=(20, len(low))), mechanism.bounds])
    try:
        rows = mechanism.probabilities(points)
    except mdp.InvalidInputError:
        # Noise of an unusual norm is drawn exactly, but its probabilities would be too inaccurate to show.
        assert mechanism.kind == "lattice-laplace"
        assert not mechanism.has_closed_form
    else:
        assert np.isfinite(rows).all(), rows
        assert rows.min() >= 0, rows.min()
        assert np.abs(rows.sum(axis=1) - 1).max() < 1e-9, rows.sum(axis=1)
    drawn = mechanism.sample(points)
    assert 0 <= drawn.min() <= drawn.max() < mechanism.n_outputs
    return "unchanged" if content_hash(path) in known else "another that certifies"


def run(count, seed, keep):
    """Load `count` mutants; return how often each outcome came of each mutation, and what crashed."""
    rng = random.Random(seed)
    signal.signal(signal.SIGALRM, too_slow)
    counts, crashes, slowest = Counter(), [], 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = base_files(folder)
        bases = [path.read_bytes() for path in files]
        known = {content_hash(path) for path in files}
        limit = memory_now() + MEMORY
        for number in range(count):
            mutation = rng.choice(MUTATIONS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # two entries of one name, or NaN among whole numbers, are meant
                mutant = mutation(rng.choice(bases), rng, bases)
            path = folder / "mutant.mdp"
            path.write_bytes(mutant)
            started = time.perf_counter()
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            signal.alarm(SECONDS)
            try:
                counts[mutation.__name__, outcome(path, known)] += 1
            except (Exception, TooSlowError) as error:  # noqa: BLE001 - whatever it is, it is a finding
                counts[mutation.__name__, "crash"] += 1
                crashes.append(f"{number} {mutation.__name__}: {error!r}\n{traceback.format_exc()}")
                if keep:
                    (Path(keep) / f"{number}-{mutation.__name__}.mdp").write_bytes(mutant)
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            slowest = max(slowest, time.perf_counter() - started)
    return counts, crashes, slowest


class TooSlowError(BaseException):
    """A mutant kept the process busy; no `except` of the library may catch it."""


def too_slow(*_):
    """Interrupt a mutant that takes too long."""
    raise TooSlowError


def memory_now():
    """Return the size of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    warnings.simplefilter("error")
    found, failures, longest = run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    table = {}
    for (mutation_name, result), times in sorted(found.items()):
        table.setdefault(mutation_name, {})[result] = times
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"counts": table, "crashes": failures, "slowest_s": longest, "peak_mb": peak}, indent=1))
