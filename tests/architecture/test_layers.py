"""The rooms of the house, read off the imports: who may know whom, and that a proof never meets a solver."""

import ast
import functools
import re
from pathlib import Path

import pytest

from metricdp.experiments.engine.source import own_sources
from metricdp.mechanisms.families import FOLDERS, families

SOURCE = Path(__file__).parents[2] / "src" / "metricdp"

# From the ground up. A module may import from its own layer and from those below; the first line that fits counts.
LAYERS = {
    "__main__": 14,
    "_": 0,
    "errors": 0,
    "geometry": 1,
    "drawing": 1,
    "problem": 2,
    "files.archive": 2,
    "files.header": 2,
    "files.places": 2,
    "files.writing": 2,
    "mechanisms.auto": 7,
    "mechanisms.fitting": 8,
    "mechanisms.options": 6,
    "mechanisms.*.program": 6,
    "mechanisms.*.fit": 6,
    "mechanisms.spline.background": 6,
    "mechanisms.spline.plan": 6,
    "mechanisms.gridded.cells": 6,
    "mechanisms.gridded.lp": 6,
    "mechanisms.gridded.copt": 6,
    "mechanisms.gridded.copt_program": 6,
    "mechanisms.aipo.split": 6,
    "mechanisms.*.proof": 4,
    "mechanisms.aipo.slope_bound": 4,
    "mechanisms": 3,
    "certificates": 4,
    "optimise": 5,
    "bounds": 7,
    "files": 8,
    "auditing": 8,
    "ledger": 9,
    "cities": 9,
    "traces": 9,
    "perturb": 10,
    "attacking": 10,
    "estimating": 10,
    "service": 11,
    "experiments": 12,
    "cli": 13,
}
# What designs a mechanism. A mechanism, its proof and whatever they import must never come across it.
DESIGNERS = re.compile(
    r"optimise\b|bounds\b|mechanisms\.(auto|fitting|options)\b|mechanisms\.\w+\.(fit|program|background|plan|lp|copt\w*)$"
)
TRUSTED = re.compile(
    r"mechanisms\.(base|\w+\.(mechanism|proof|sampler|exact))$|certificates\b|drawing\b|files\b|auditing\b"
)


def modules():
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


def known(name):
    """Return the module that a dotted name lies in."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def imported(path):
    """Yield what a file imports, inside functions too, but for types; packages with a stub import what it lists."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "metricdp":
            inside = node.module.removeprefix("metricdp").removeprefix(".")
            for alias in node.names:
                yield f"{inside}.{alias.name}".removeprefix(".")
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("metricdp.") for alias in node.names if alias.name[:9] == "metricdp.")
        elif isinstance(node, ast.Constant) and re.fullmatch(r"metricdp\.[\w.]+:\w+", str(node.value)):
            yield "named " + node.value.partition(":")[0].removeprefix("metricdp.")


@functools.cache
def graph(*, named):
    """Return who imports whom; with `named`, what the registry names as "module:name" counts too."""
    edges = {}
    for name, path in MODULES.items():
        wanted = [what for what in imported(path) if named or not what.startswith("named ")]
        edges[name] = {known(what.removeprefix("named ")) for what in wanted} - {name, ""}
    return edges


def layer(name):
    for pattern, level in LAYERS.items():
        if re.match(
            pattern.replace(".", r"\.").replace(r"\.*", r"\.\w+") + (r"" if pattern == "_" else r"(\.|$)"), name
        ):
            return level
    raise AssertionError(f"{name} is in no layer")


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_nothing_downstream_is_imported_upstream(name):
    above = {other for other in graph(named=False)[name] if layer(other) > layer(name)}
    assert not above


def test_no_cycle_even_counting_imports_inside_functions():
    left = {name: set(others) for name, others in graph(named=True).items()}
    # Take away whoever imports nobody that is left, and whoever nobody that is left imports: cycles remain.
    while free := [n for n, others in left.items() if not others & left.keys() or n not in set().union(*left.values())]:
        for name in free:
            del left[name]
    assert not {name: others & left.keys() for name, others in left.items()}


def reached(names, *, named):
    """Return modules with all that they import, directly or not."""
    edges, seen, open_ = graph(named=named), set(), list(names)
    while open_:
        here = open_.pop()
        if here not in seen:
            seen.add(here)
            open_ += edges[here]
    return seen


@pytest.mark.parametrize("name", [name for name in MODULES if TRUSTED.match(name)])
def test_what_is_trusted_never_imports_what_designs(name):
    assert not [other for other in reached([name], named=False) if DESIGNERS.match(other)]


def test_keys_of_results_cover_all_code_that_computes_them():
    """Who changes a module that a job can reach must not be answered with results of the old one."""
    covered = {name for name, _ in own_sources()}
    families = [folder.removeprefix("metricdp.") for folder in FOLDERS]
    computing = reached(["experiments.measuring", "experiments.paper.measuring", *families], named=True)
    assert {"optimise.engines.structured", "mechanisms.spline.fit", "cities.design"} <= computing
    missing = {MODULES[name].relative_to(SOURCE).as_posix() for name in computing} - covered
    assert missing <= {"_version.py"}  # its number is copied into reports, which results leave out


def test_families_are_reached_through_the_registry():
    """Beside the families themselves only the paper's own experiments, which look inside AIPO, name one."""
    folders = tuple(f"{folder.removeprefix('metricdp.')}." for folder in FOLDERS)
    for name, others in graph(named=False).items():
        if not name.startswith(("mechanisms.", "experiments.paper.")):
            assert not [other for other in others if other.startswith(folders)], name


def test_every_mechanism_and_proof_is_looked_at():
    for family in families():
        for place in (family.mechanism_at, family.prove_at):
            assert TRUSTED.match(place.partition(":")[0].removeprefix("metricdp.")), place


def test_the_page_on_architecture_has_every_room_at_its_layer():
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (SOURCE.parents[1] / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    listed = {int(level): row for level, row in rows}
    for name in filter(None, MODULES):
        room = name.partition(".")[0]
        file = f"{room}.py" if MODULES[name].parent == SOURCE else f"{room}/"
        words = "modules with `_`" if room.startswith("_") and room != "__main__" else f"`{file}`"
        assert words in listed[layer(name)], f"{name} is at layer {layer(name)}"


def test_no_module_has_the_name_of_the_public_function_it_holds():
    public = (SOURCE / "__init__.pyi").read_text()
    for where, names in re.findall(r"^from \.([\w.]+) import (.+)$", public, re.MULTILINE):
        assert not {name.strip() for name in names.split(",")} & set(where.split("."))


TESTS = SOURCE.parents[1] / "tests"


def test_tests_never_import_each_other_and_lie_in_the_folder_of_their_room():
    files = sorted(TESTS.rglob("test_*.py"))
    assert len({file.name for file in files}) == len(files)
    for file in files:
        assert file.parent.parent == TESTS, file.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith("test_")], file.name
