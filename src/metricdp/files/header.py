"""The header of a mechanism file: written from a mechanism, and turned back into one with every field checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray, norm_order, positive, reject, table
from metricdp._version import __version__
from metricdp.files.places import PLACE_ARRAYS, pack_places, unpack_places
from metricdp.geometry.epsilon_map import MAP_ARRAYS, EpsilonMap
from metricdp.geometry.projection import Equirectangular

if TYPE_CHECKING:
    from metricdp.mechanisms.base import Mechanism

__all__ = ["FORMAT", "describe", "plain", "rebuild", "require_types"]

# The format that files are written in.
FORMAT = 3

_TYPES: dict[str, tuple[type, ...]] = {
    "box": (list,),
    "certificate": (dict, type(None)),
    "distance": (str,),
    "epsilon": (str,),
    "format": (int,),
    "grid": (dict, type(None)),
    "kind": (str,),
    "library": (str,),
    "method": (str,),
    "p": (str,),
    "projection": (dict, type(None)),
    "report": (dict,),
    "settings": (dict,),
    "sha256": (str,),
    "units": (str, type(None)),
}
_DECIMAL = re.compile(r"\d{1,400}(\.\d{1,400})?(e[+-]?\d{1,3})?")
# Methods and versions: short, and harmless in terminals, logs and pages.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")

# Lists and objects inside each other, the header included: a limit that readers keep without exhausting their stack.
_DEEPEST = 100

# Products and squares of such numbers are finite and not zero.
_LARGEST = 1e100

# Least width of the box and of cells, as a share of the coordinates: floating point hardly tells closer points apart.
_NARROWEST = 1e-9


def describe(mechanism: Mechanism, number: int = FORMAT) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header of a mechanism in format `number`, 2 or 3, without its hash, and its arrays."""
    settings = mechanism.settings()
    arrays = {name: value for name, value in settings.items() if isinstance(value, np.ndarray)}
    report = plain(mechanism.report)
    header = {
        "format": number,
        "kind": mechanism.kind,
        "method": mechanism.method,
        "epsilon": repr(float(mechanism.epsilon)),
        "p": "inf" if math.isinf(mechanism.p) else repr(float(mechanism.p)),
        "box": mechanism.bounds.tolist(),
        "projection": None if mechanism.projection is None else mechanism.projection.to_dict(),
        # Before format 3 every ε was per unit of the plane.
        **({"distance": mechanism.distance} if number >= 3 else {}),
        "units": None if mechanism.projection is None else "km",
        "grid": mechanism.grid_summary(),
        # A mechanism that was read from a file keeps the version that made it.
        "library": report.pop("library", __version__),
        "certificate": report.pop("certificate", None),
        "report": report,
        "settings": plain({name: value for name, value in settings.items() if name not in arrays}),
    }
    more = pack_places(mechanism) if number >= 3 else {}
    if mechanism.epsilon_map is not None and number >= 3:
        more |= mechanism.epsilon_map.to_arrays()
    return header, {"outputs": mechanism.outputs, **more, **arrays}


def plain(value: Any) -> Any:
    """Return what JSON can hold; infinity and NaN, which it lacks, become the text "inf", "-inf" or "nan"."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise reject("report", "made of numbers, text, lists and dictionaries", f"a {type(value).__name__}")


def rebuild(header: dict[str, Any], arrays: Mapping[str, NDArray[Any]], kind: type[Mechanism]) -> Mechanism:
    """Return the mechanism of class `kind` that a header and its arrays describe, each of them checked."""
    require_types(header)
    box = _box(header["box"])
    epsilon = _epsilon(header["epsilon"])
    p = norm_order(header["p"])
    report = {**header["report"], "library": _name("library", header["library"])}
    if header["certificate"] is not None:
        report["certificate"] = _certificate(header["certificate"], epsilon, p)
    outputs = _outputs(arrays["outputs"], box.shape[1], empty=not kind.has_outputs)
    common = {
        "outputs": outputs,
        **unpack_places(arrays, len(outputs)),
        "bounds": box,
        "epsilon": epsilon,
        "p": p,
        "method": _name("method", header["method"]),
        "report": report,
        "projection": _projection(header["projection"], box.shape[1]),
        "distance": header["distance"],
        "epsilon_map": _epsilon_map(arrays, box, epsilon),
    }
    settings = _settings(header["settings"], arrays)
    mechanism = kind.from_settings(common, settings)
    grid = getattr(mechanism, "grid", None)
    if grid is not None and not all(map(_wide, grid.breakpoints)):
        raise reject("breakpoints", f"apart by {_NARROWEST:g} of the coordinates at least", "closer ones")
    unknown = set(settings) - set(mechanism.settings())
    if unknown:
        raise reject("settings", f"those of kind {kind.kind!r}", f"also {', '.join(sorted(unknown))}")
    return mechanism


def require_types(header: dict[str, Any]) -> None:
    """Raise unless every field is known and of its type."""
    for name, value in header.items():
        if name not in _TYPES:
            raise reject("header", f"made of {', '.join(_TYPES)}", f"also {name!r}")
        if type(value) not in _TYPES[name]:
            words = " or ".join("null" if kind is type(None) else kind.__name__ for kind in _TYPES[name])
            raise reject(name, f"of type {words}", type(value).__name__)
    if _is_deeper(header, _DEEPEST):
        raise reject("header", f"nested at most {_DEEPEST} deep", "deeper")


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)


def _epsilon(text: str) -> float:
    if _DECIMAL.fullmatch(text) is None:
        raise reject("epsilon", "a decimal number", repr(text))
    epsilon = positive("epsilon", text)
    if not 1 / _LARGEST <= epsilon <= _LARGEST:
        raise reject("epsilon", f"from {1 / _LARGEST:g} to {_LARGEST:g}", text)
    return epsilon


def _epsilon_map(arrays: Mapping[str, NDArray[Any]], box: FloatArray, epsilon: float) -> EpsilonMap | None:
    """Return the map of ε, None if the file has none; it must be one of exactly this box."""
    found = EpsilonMap.from_arrays(arrays, box.shape[1])
    if found is None:
        return None
    if not np.array_equal(found.bounds, box):
        raise reject("epsilon_breakpoints", "arrays that span the box of the mechanism", found.bounds.tolist())
    if found.max != epsilon or found.min < 1 / _LARGEST:
        rule = f"at least {1 / _LARGEST:g}, and `epsilon` = {epsilon} the largest of them"
        raise reject("epsilon_values", rule, f"values from {found.min} to {found.max}")
    return found


def _box(corners: list[Any]) -> FloatArray:
    box = table("box", corners)
    if len(box) != 2 or np.abs(box).max() > _LARGEST or not all(map(_wide, box.T)):
        rule = f"a lower and a higher corner of coordinates up to {_LARGEST:g}, {_NARROWEST:g} of them wide at least"
        raise reject("box", rule, f"shape {box.shape}")
    return box


def _wide(edges: FloatArray) -> bool:
    """Return whether what lies between edges is wide enough to compute with."""
    return bool(np.diff(edges).min() >= max(_NARROWEST * np.abs(edges).max(), 1 / _LARGEST))


def _outputs(given: NDArray[Any], n_axes: int, *, empty: bool) -> FloatArray:
    if empty:
        if given.shape != (0, n_axes) or given.dtype != np.float64:
            raise reject("outputs", f"an empty array of shape (0, {n_axes}) for this kind", f"shape {given.shape}")
        return np.empty((0, n_axes))
    outputs = table("outputs", given, columns=n_axes)
    if np.abs(outputs).max() > _LARGEST:
        raise reject("outputs", f"of coordinates up to {_LARGEST:g}", "larger ones")
    return outputs


def _name(field: str, text: str) -> str:
    """Return a short text that is safe to print."""
    if _NAME.fullmatch(text) is None:
        raise reject(field, "a short name of letters, digits, spaces and . _ + -", repr(text))
    return text


def _projection(values: dict[str, Any] | None, n_axes: int) -> Equirectangular | None:
    if values is not None and n_axes != 2:
        raise reject("projection", "null unless the box has two axes", f"{n_axes} axes")
    return None if values is None else Equirectangular.from_dict(values)


def _certificate(given: dict[str, Any], epsilon: float, p: float) -> dict[str, Any]:
    """Return the certificate that was given with the mechanism; it must at least speak of this ε and p."""
    certificate = {**given, "p": norm_order(given["p"])}
    if certificate["holds"] is not True or certificate["epsilon"] != epsilon or certificate["p"] != p:
        raise reject("certificate", f"one that holds for epsilon = {epsilon:g} and p = {p:g}", "another one")
    return certificate


def _settings(numbers: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    for name, value in numbers.items():
        if name in arrays or isinstance(value, (list, dict)):
            raise reject(f"settings.{name}", "a number or text that is no array of the file", type(value).__name__)
    own = {name: array for name, array in arrays.items() if name not in (*PLACE_ARRAYS, *MAP_ARRAYS)}
    for name, array in own.items():
        if array.dtype == np.uint8:
            raise reject(name, "an array of numbers", "bytes of text")
    return numbers | {name: array for name, array in own.items() if name != "outputs"}
