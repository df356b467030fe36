"""`metricdp certify`: whether a mechanism file is private."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Annotated, Any

import numpy as np
import typer

from metricdp._lengths import length_text
from metricdp._validation import FloatArray, reject
from metricdp.certificates.proving import Certificate, certify, comparisons
from metricdp.cli._console import out, print_json
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.files.reading import MechanismFile as Contents
from metricdp.files.reading import read_file
from metricdp.geometry.projection import lonlat_arrays
from metricdp.mechanisms.base import Mechanism

__all__ = ["certify_command"]

# How far apart the two people of the answer are, where distances are kilometres.
_KILOMETRES = 0.5

# Larger exponents have no number that says more than they do.
_LARGEST_EXPONENT = 20.0

# The exponential of more than this is no float.
_LARGEST_FLOAT = 709.0


def certify_command(
    file: MechanismFile,
    *,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="Also say what is proved of two places: lon,lat lon,lat, or in the mechanism's own coordinates."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Prove from the file alone that a mechanism is private; exit code 1 if that fails."""
    contents = read_file(file)
    places = None if between is None else [_place_given(text, contents.mechanism) for text in between]
    with np.errstate(all="ignore"):  # numbers from elsewhere may overflow; the proof fails then
        certificate = certify(contents.mechanism)
    pair = None if places is None or not certificate.holds else _pair(certificate, contents.mechanism, places)
    if as_json:
        print_json({"file": str(file), **_identity(contents), **certificate.to_dict(), "between": pair})
    else:
        _show(contents, certificate)
        if pair is not None:
            out.print(_pair_in_words(pair), soft_wrap=True)
    if not certificate.holds:
        raise typer.Exit(1)


def _identity(contents: Contents) -> dict[str, Any]:
    return {
        "method": contents.mechanism.method,
        "kind": contents.mechanism.kind,
        "format": contents.format,
        "library": contents.library,
        "sha256": contents.sha256,
    }


def _show(contents: Contents, certificate: Certificate) -> None:
    verdict = "[bold green]holds[/]" if certificate.holds else "[bold red]does not hold[/]"
    out.print(f"{verdict}: {certificate.claim}", soft_wrap=True)
    if certificate.holds:
        out.print(_in_words(certificate), soft_wrap=True)
    stored = "as stored" if contents.format > 1 else "not stored"
    lines = [
        f"worst ratio {certificate.worst_ratio:.6f} of ε{_place(certificate.worst_where)}",
        comparisons(certificate),
        f"box {_box(contents)}; {contents.mechanism.n_outputs} outputs",
        f"method {contents.mechanism.method}; file format {contents.format}, metricdp {contents.library}",
        f"sha256 {contents.sha256[:16]}…, {stored}",
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _in_words(certificate: Certificate) -> str:
    """Say what ε means for two people at a distance that is easy to imagine: 500 m, or that of a factor e."""
    metres = certificate.metres
    if metres is None:
        distance = 1 / certificate.epsilon
        who, exponent = f"Two points {distance:.3g} (1/ε) apart", certificate.epsilon * distance
    else:
        who, exponent = "Two people 500 m apart", metres.epsilon_per_km * _KILOMETRES
    words = f"{who}: no report is more than {_times(exponent)} times likelier from one than from the other"
    if certificate.paths is not None:
        least = exponent * certificate.paths.least / certificate.paths.most
        words += f", and {_times(least)} times where ε is {certificate.paths.least:g} all the way between them"
    return f"{words}." if metres is None else f"{metres.statement}\n{words}."


def _times(exponent: float) -> str:
    """Return e^exponent as a number people can read, rounded up."""
    if exponent > _LARGEST_EXPONENT:
        return f"e^{length_text(exponent, '', ROUND_CEILING)}"
    return length_text(math.exp(exponent) * (1 + 1e-15), "", ROUND_CEILING)


def _place_given(text: str, mechanism: Mechanism) -> FloatArray:
    """Return a place of `--between`, in degrees where the mechanism has a projection."""
    n_axes = mechanism.bounds.shape[1]
    example = "24.94,60.17 (longitude first)" if mechanism.projection is not None else ",".join(["1.5"] * n_axes)
    try:
        place = np.array([float(part) for part in text.split(",")])
    except ValueError:
        place = np.empty(0)
    if len(place) != n_axes or not np.isfinite(place).all():
        # Which of the two, and what it is, stays unsaid: it may be somebody's place.
        raise reject("--between", f"two places of {n_axes} numbers each, such as {example}", "something else")
    if mechanism.projection is not None:
        lonlat_arrays(place[0], place[1])
    return place


def _pair(certificate: Certificate, mechanism: Mechanism, places: list[FloatArray]) -> dict[str, Any]:
    """Return what is proved of two places, as plain data."""
    degrees = mechanism.projection is not None
    exponent = (certificate.between_lonlat if degrees else certificate.between)(*places)
    radius = certificate.radius_lonlat if degrees else certificate.radius
    return {
        "exponent": exponent,
        "ratio": math.exp(exponent) if exponent < _LARGEST_FLOAT else math.inf,
        "radii": [radius(place) for place in places],
        "distance_unit": "km" if degrees else "",
    }


def _pair_in_words(pair: dict[str, Any]) -> str:
    here, there = (
        length_text(radius, pair["distance_unit"], ROUND_FLOOR) if radius else "none" for radius in pair["radii"]
    )
    power = f"e^{length_text(pair['exponent'], '', ROUND_CEILING)}"
    ratio = "" if pair["exponent"] > _LARGEST_EXPONENT else f" = {_times(pair['exponent'])}"
    return (
        f"Between these two places: no report is more than {power}{ratio} times likelier from one than from the other. "
        f"Within {here} of the first at most e times, within {there} of the second."
    )


def _place(where: dict[str, Any]) -> str:
    if not where:
        return ""  # a bound that is the same everywhere
    points = " and ".join("(" + ", ".join(f"{x:.10g}" for x in point) + ")" for point in where["points"])
    return f" at {points}, output {where['output']}" if "output" in where else f" at {points}"


def _box(contents: Contents) -> str:
    sides = " x ".join(f"[{low:.6g}, {high:.6g}]" for low, high in contents.mechanism.bounds.T)
    return f"{sides} km" if contents.mechanism.projection is not None else sides
