"""Write tests/vectors/: small mechanism files, and what every implementation must make of them.

`python tests/make_vectors.py` is deterministic. Files are written once by the library; verdicts, claims and draws are
those of the library at the time of writing, the decision boundaries of lattice noise come from decimal arithmetic alone.
Both test suites, tests/device in Python and js/test in JavaScript, run what is written here.
"""

import io
import json
import math
import sys
import zipfile
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import metricdp as mdp
from file_mutants import sparse_twin
from forging import FORGERS, opened, parts_of, sealed
from forging_maps import forge_elastic
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.noise.exact import LatticeNoise, dyadic_below
from oracles import decimal_norm
from problems import random_problem
from vectors_words import ListedWords

FOLDER = Path(__file__).parent / "vectors"
DATA = Path(__file__).parent / "data"
CITY = Equirectangular(24.94, 60.17)
POINTS = 60
FORGED, ELASTIC = 48, 16


def main():
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*"):
        old.unlink()
    names = write_files()
    forged = write_forged()
    vectors = {
        "about": "written by tests/make_vectors.py; words are 64-bit, numbers that must agree to the bit are hexadecimal floats",
        "files": [file_vector(name) for name in names],
        "forged": [verdict_vector(name) for name in forged],
        "noise": [noise_vector(*case) for case in NOISE],
    }
    text = json.dumps(vectors, indent=1, allow_nan=False)
    (FOLDER / "vectors.json").write_text(text + "\n")


def made_mechanisms():
    """Return one small mechanism of every kind that the device can draw from, by name."""
    plane = mdp.fit(random_problem(8, n_outputs=3), 1.0, "spline", cells=2, degree=2)
    return {
        "spline-plane": plane,
        "spline-line-cubic": mdp.fit(random_problem(9, n_axes=1, n_outputs=4), 1.0, "spline", cells=3, degree=3),
        "spline-p1-linear": mdp.fit(random_problem(11, n_outputs=5, p=1), 1.5, "spline", cells=3, degree=1),
        "spline-pinf": mdp.fit(random_problem(12, n_outputs=3, p=math.inf), 1.0, "spline", cells=2, degree=2),
        "spline-ground": on_the_ground(random_problem(8, n_outputs=3), "spline", cells=3),
        "spline-sparse": sparse_twin(plane),
        "spline-elastic": mdp.fit(random_problem(8, n_outputs=3), elastic(), "spline", cells=4, degree=2),
        "spline-elastic-ground": on_the_ground(random_problem(8, n_outputs=3), "spline", cells=4, varying=True),
        "laplace-ground": on_the_ground(random_problem(3, n_outputs=3), "laplace", squares=8),
        "laplace-diagonal": mdp.fit(random_problem(4, n_outputs=3, p=math.inf), 2.0, "laplace-remap", squares=8),
        "laplace-space": mdp.fit(random_problem(5, n_axes=3, n_outputs=3, p=1), 1.0, "laplace", squares=4),
        "laplace-line": mdp.fit(random_problem(13, n_axes=1, n_outputs=4), 3.0, "laplace", squares=8),
        "noise-ground": mdp.noise(2.0, lonlat_bounds=[[12.2, 41.6], [12.8, 42.1]]),
        "noise-antimeridian": mdp.noise(0.5, lonlat_bounds=[[179.5, -17.0], [-179.5, -16.0]]),
        "noise-plane-p1.5": mdp.noise(0.7, 1.5, bounds=[[0.0, -3.0], [9.0, 4.0]]),
        "noise-space": mdp.noise(1.3, 2, bounds=[[0.0, 0.0, 0.0], [2.0, 2.0, 5.0]]),
        "noise-four-axes-pinf": mdp.noise(1.3, math.inf, bounds=[[0.0] * 4, [1.0] * 4]),
    }


def elastic():
    """Return a map of ε whose borders are off the grid, over a box that is larger than the problem's."""
    return mdp.EpsilonMap([[-100.0, 1.3, 3.1, 100.0], [-100.0, 2.2, 100.0]], [[0.5, 0.7], [2.0, 0.7], [0.9, 0.9]])


def on_the_ground(problem, method, *, varying=False, **options):
    """Return a mechanism around Helsinki with ids and names, some of which need care."""
    ids = [2**63 - 1, -7, 0] if method == "laplace" else ["harbour", "é\U0001f600", "<b>&"]
    lonlat = [CITY.to_lonlat(points) for points in (problem.records, problem.outputs)]
    city = mdp.Problem.from_lonlat(*lonlat, "euclidean", output_ids=ids, output_names=["One", "", "Kolmas, “3”"])
    return mdp.fit(city, elastic() if varying else 2.0, method, **options)


def write_files():
    names = []
    for name, mechanism in made_mechanisms().items():
        report = {"solver": "none", "gap": 1e-6, "splits": [{"loss": 1.0, "n": 3}], "certificate": None}
        given = mdp.certify(mechanism).to_dict() | {"seconds": 0.0}  # no timings: the same files every time
        if name == "spline-plane":
            report["certificate"] = given
        replace(mechanism, report=report | {"library": "0.2.0"}).save(FOLDER / f"{name}.mdp")
        names.append(f"{name}.mdp")
    for name in ("laplace-city-format-1", "laplace-city-format-2", "spline-city-format-2"):
        (FOLDER / f"{name}.mdp").write_bytes((DATA / f"{name}.zip").read_bytes())
        names.append(f"{name}.mdp")
    (FOLDER / "spline-format-1.mdp").write_bytes(format_1_spline())
    return [*names, "spline-format-1.mdp"]


def format_1_spline():
    """Return a file from before there were integers: a table in floating point, the box among the arrays."""
    header, arrays = opened((FOLDER / "spline-line-cubic.mdp").read_bytes())
    arrays["bounds"] = np.array(header["box"])
    arrays["table"] = arrays["table"] / arrays["table"].sum(axis=1, keepdims=True)
    kept = {name: header[name] for name in ("epsilon", "kind", "method", "p", "projection", "report")}
    return undated(sealed(kept | {"format": 1, "settings": {"degree": header["settings"]["degree"]}}, arrays))


def undated(data):
    """Return an archive without the time of day, so that the same files are written every time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts_of(data).items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def write_forged():
    """Write files that are just inside or just outside what may be claimed."""
    rng = np.random.default_rng(19)
    kinds = ["spline", "sparse spline", "lattice-laplace"]
    names = []
    for number in range(FORGED):
        kind = kinds[number % len(kinds)]
        name = f"forged-{number:02d}.mdp"
        (FOLDER / name).write_bytes(undated(sealed(*FORGERS[kind](rng))))
        names.append(name)
    for number in range(FORGED, FORGED + ELASTIC):
        name = f"forged-{number:02d}.mdp"
        (FOLDER / name).write_bytes(undated(sealed(*forge_elastic(rng))))
        names.append(name)
    return names


def verdict_vector(name):
    try:
        mechanism = mdp.load(FOLDER / name)
    except mdp.NotCertified:
        return {"file": name, "verdict": "not certified"}
    except mdp.InvalidInputError:
        return {"file": name, "verdict": "refused"}
    return {"file": name, "verdict": "accepted", **claim_of(mechanism)}


def claim_of(mechanism):
    certificate = mdp.certify(mechanism)
    metres = certificate.metres
    return {
        "claim": certificate.claim,
        "kappa": metres and metres.kappa.hex(),
        "statement": metres and metres.statement,
        "paths": certificate.paths and certificate.paths.statement,
        "worst_ratio": certificate.worst_ratio,
    }


def file_vector(name):
    """Return what is claimed of a file, and draws: one call of `sample` for each point, all from one source of words."""
    mechanism = mdp.load(FOLDER / name)
    rng = np.random.default_rng(5)
    low, high = mechanism.bounds
    points = np.concatenate(
        [rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low), (POINTS - 2, len(low))), mechanism.bounds]
    )
    source = ListedWords(seed=7, first=open_words(mechanism, points[0]))
    draws = [mechanism.sample(point[None], source).tolist()[0] for point in points]
    found = {
        "file": name,
        "kind": mechanism.kind,
        **claim_of(mechanism),
        "places": places_of(mechanism),
        "seed": 7,
        "first_words": [str(word) for word in open_words(mechanism, points[0])],
        "points": [[x.hex() for x in point] for point in points.tolist()],
        "draws": draws if mechanism.has_outputs else [[x.hex() for x in one] for one in draws],
        "words_taken": source.taken,
    }
    if mechanism.projection is not None:
        degrees = mechanism.projection.to_lonlat(points)
        source = ListedWords(seed=11)
        drawn = [mechanism.sample_lonlat(one[None], source).tolist()[0] for one in degrees]
        found["lonlat"] = [[x.hex() for x in one] for one in degrees.tolist()]
        found["lonlat_draws"] = drawn if mechanism.has_outputs else [[x.hex() for x in one] for one in drawn]
    if mechanism.has_outputs:
        found["probabilities"] = mechanism.probabilities(points[:3]).tolist()
    return found


def places_of(mechanism):
    """Return the table of places; ids as text, because integers of 64 bits do not fit a JavaScript number."""
    return [row | {"id": str(row["id"])} for row in mechanism.places.to_dict(orient="records")]


def open_words(mechanism, point):
    """Return words for the first draw that leave decisions open, so that further words are needed."""
    if mechanism.kind == "spline":
        edges = mechanism.breakpoint_steps[0]
        steps = round(float(np.clip(point[0], *mechanism.bounds[:, 0])) / mechanism.step)
        cell = min(int(np.searchsorted(edges, steps, side="right")) - 1, len(edges) - 2)
        place, side = steps - int(edges[cell]), int(edges[cell + 1] - edges[cell])
        # The first 64 digits of the ratio itself; the digits that follow decide.
        return [(place << 64) // side] if 0 < place < side else []
    # The digits of e^{-3b}, where a magnitude changes from 2 to 3; then a u that starts with more than 64 zeros.
    noise = mechanism.noise
    with localcontext(prec=60):
        rate = Decimal(noise.proposal_rate.numerator) / Decimal(noise.proposal_rate.denominator)
        border = int((-3 * rate).exp() * 2**63)
    return [
        2 * border,
        *([2**63 + 12345] * (noise.words_per_attempt - 1)),
        2**40,
        *([1] * noise.words_per_attempt),
        77,
        2**63,
    ]


# Rate, order of the norm, axes, largest coordinate whose boundaries are listed.
NOISE = [
    (0.5, 1.0, 1, 4),
    (0.5, 2.0, 2, 3),
    (0.75, math.inf, 2, 2),
    (1.0, 1.5, 2, 2),
    (0.5, 2.0, 3, 1),
    (2.0**-20, 2.0, 2, 3),
]
BOUNDARY_BITS = 96


def noise_vector(rate, p, n_axes, largest):
    """Return where decisions change: digits of e^{−bn} for magnitudes, of e^{−(a‖v‖_p − b‖v‖_1)} for kept vectors."""
    noise = LatticeNoise(dyadic_below(rate), p, n_axes)
    b = noise.proposal_rate
    found = {
        "rate": rate.hex(),
        "p": "inf" if math.isinf(p) else p,
        "axes": n_axes,
        "proposal": [str(b.numerator), str(b.denominator)],
        "bits": BOUNDARY_BITS,
        "magnitudes": [],
        "coins": [],
    }
    with localcontext(prec=80):
        slope = Decimal(b.numerator) / Decimal(b.denominator)
        for n in range(1, largest + 1):
            found["magnitudes"].append(str(int((-n * slope).exp() * 2**BOUNDARY_BITS)))
        for vector in np.ndindex(*(largest + 1 for _ in range(n_axes))):
            if not any(vector) or noise.words_per_attempt == n_axes:
                continue
            gap = Decimal(rate) * decimal_norm(vector, p) - slope * sum(vector)
            found["coins"].append([list(vector), str(int((-gap).exp() * 2**BOUNDARY_BITS))])
    return found


if __name__ == "__main__":
    main()
