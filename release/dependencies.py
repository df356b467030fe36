"""The software bill of materials, and whether every licence in it goes with ours."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing
from packaging.utils import canonicalize_name

from release.running import Failed, run

__all__ = ["allowed", "bill_of_materials", "licences_of"]

ROOT = Path(__file__).parents[1]
_RULES = tomllib.loads((ROOT / "release" / "licences.toml").read_text(encoding="utf-8"))
_SPDX = get_spdx_licensing()


def bill_of_materials(python: Path, written: Path) -> str:
    """Write what an environment holds as CycloneDX, and check all licences."""
    tool = (sys.executable, "-m", "cyclonedx_py", "environment")
    run(
        *tool,
        "--pyproject",
        ROOT / "pyproject.toml",
        "--mc-type",
        "library",
        "--output-reproducible",
        "--output-file",
        written,
        python,
        cwd=written.parent,
    )
    components = json.loads(written.read_text(encoding="utf-8"))["components"]
    found = {f"{one['name']} {one['version']}": licences_of(one) for one in components}
    refused = [
        f"{name}: {one or 'no licence that its metadata tell'}" for name, one in found.items() if not allowed(one)
    ]
    if refused:
        raise Failed("Not on the list of release/licences.toml:", *refused)
    listed = [f"{name}: {one}" for name, one in sorted(found.items())]
    return "\n".join([f"{written.name}: {len(found)} packages, all with licences on the list", *listed])


def licences_of(component: Mapping[str, Any]) -> str:
    """Return the licence of a component as an SPDX expression; empty if its metadata do not tell."""
    by_hand = _RULES["packages"].get(canonicalize_name(component["name"]))
    return by_hand or " AND ".join(sorted({f"({one})" if " " in one else one for one in _stated(component)}))


def _stated(component: Mapping[str, Any]) -> Iterator[str]:
    for entry in component.get("licenses", []):
        licence = entry.get("license", {})
        stated = entry.get("expression") or licence.get("id") or licence.get("name")
        yield _RULES["names"].get(stated, stated)


def allowed(expression: str) -> bool:
    """Tell whether software under an SPDX expression may be a dependency: of `OR` one side suffices."""
    try:
        parsed = _SPDX.parse(expression)
    except ExpressionError:  # words that are no expression
        return False
    return parsed is not None and _allowed(parsed)


def _allowed(parsed: LicenseExpression) -> bool:
    if parsed.isliteral:
        return parsed.render() in _RULES["allowed"]
    return (any if parsed.operator.strip() == "OR" else all)(_allowed(one) for one in parsed.args)
