"""What a likely change may forget: each registry against the files beside it, and against the page that documents it."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import typer

import metricdp as mdp
from metricdp import cities
from metricdp.bounds import choosing
from metricdp.cli._commands import COMMANDS
from metricdp.files.header import FORMAT
from metricdp.files.reading import READERS
from metricdp.mechanisms import families
from metricdp.optimise import engines
from problems import random_problem

# Commands that answer no question: a service, and a demonstration that writes files.
SILENT = ("demo", "serve")

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "metricdp"


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def modules_of(package):
    return [
        importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ]


@pytest.mark.parametrize(
    "words",
    ["Definition 7", "Definition 8", "Theorem 1", "Theorem 2", "Proposition 3", "Proposition 4", "Proposition 5"],
)
def test_the_paper_is_found_by_its_words(words):
    assert [path for path in SOURCE.rglob("*.py") if re.search(rf"{words}\b", path.read_text(encoding="utf-8"))]


# Mechanisms and proofs


def test_every_folder_of_mechanisms_is_registered():
    folders = {path.parent.name for path in SOURCE.glob("mechanisms/*/__init__.py")}
    assert {f"metricdp.mechanisms.{folder}" for folder in folders} == set(families.FOLDERS)


@pytest.mark.parametrize("family", families.families(), ids=lambda family: family.kind)
def test_a_family_names_things_that_are_there(family):
    assert family.mechanism.kind == family.kind
    assert callable(family.prove)
    for method in family.methods:
        assert callable(method.design)
        assert method.options()
    assert f"| `{family.kind}` |" in page("file-format.md")


def test_no_two_methods_look_alike():
    for what in ("label", "colour"):
        shown = [getattr(method, what) for method in mdp.METHODS.values()]
        assert len(set(shown)) == len(shown)


# Engines


def test_every_engine_is_offered():
    there = {module.ENGINE.name for module in modules_of(engines) if hasattr(module, "ENGINE")}
    assert there == {engine.name for engine in engines.ENGINES}


def test_every_engine_solves_something():
    assert all(engine.linear or engine.shared or engine.tensor for engine in engines.ENGINES)


# Norms

# What looks at the order of a norm besides `geometry/norms.py`: who adds a norm that is no ℓ_p must look at each of these.
LOOK_AT_ORDERS = {
    "_validation.py", "auditing/draws.py", "certificates/claims.py", "files/header.py",
    "ledger/batch.py", "mechanisms/base.py", "mechanisms/aipo/fit.py", "mechanisms/gridded/cells.py",
    "mechanisms/laplace/fit.py", "mechanisms/laplace/mechanism.py", "mechanisms/laplace/mixture_mass.py",
    "mechanisms/noise/exact.py", "mechanisms/spline/program.py", "mechanisms/spline/proof.py", "perturb/reports.py",
    "experiments/estimates.py", "experiments/paper/job.py", "experiments/paper/tables.py",
}  # fmt: skip


def test_only_these_modules_look_at_the_order_of_a_norm():
    looks = re.compile(r"\b(p|order) (==|!=|[<>]=?) \d|isinf\((\w+\.)?(p|order)\)|1 / (\w+\.)?p\b")
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if looks.search(path.read_text())}
    assert found - {"geometry/norms.py"} == LOOK_AT_ORDERS


# Formats of files


def test_every_format_number_has_a_reader_a_page_and_old_files():
    assert sorted(READERS) == list(range(1, FORMAT + 1))
    assert page("file-format.md").startswith(f"# The mechanism file, format {FORMAT}\n")
    for number in range(1, FORMAT):
        assert list((ROOT / "tests" / "data").glob(f"*-format-{number}.zip"))


def test_every_ending_of_points_is_offered_and_documented():
    from metricdp.perturb import formats

    kinds = {kind for module in modules_of(formats) for kind in vars(module).values() if isinstance(kind, type)}
    endings = {ending for kind in kinds if issubclass(kind, formats.Sink) for ending in getattr(kind, "suffixes", ())}
    assert endings == {ending for kind in formats.FORMATS for ending in kind.suffixes}
    assert endings <= set(formats.suffixes())
    for suffix in (*endings, *formats.COMPRESSIONS):
        assert f"`{suffix}`" in page("perturb.md"), suffix


# Lower bounds and columns


def test_every_lower_bound_is_documented():
    for kind in choosing.BOUNDS:
        assert f'"{kind}"' in mdp.lower_bound.__doc__


def test_every_column_of_compare_is_measured_and_documented():
    frame = mdp.compare(random_problem(0, n_records=10, n_outputs=3), [1.0], ["em"], clusters=3, pairs=10)
    for column in frame.columns.drop(["method", "epsilon"]):
        assert f"`{column}`" in mdp.compare.__doc__, column
        assert frame[column].notna().all(), column


# Routes


def test_every_route_is_documented(tmp_path):
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from metricdp.service import Settings, create_app

    mdp.fit(random_problem(0, n_records=10, n_outputs=3), 1.0, "em").save(tmp_path / "em.mdp")
    for path in create_app(Settings(files=(tmp_path / "em.mdp",))).openapi()["paths"]:
        assert path in page("service.md"), path


# Commands and options


def commands_of(name):
    """Return a command, or those of a group, by what is typed after `metricdp`."""
    found = pkgutil.resolve_name(COMMANDS[name][0])
    if isinstance(found, typer.Typer):
        return {f"{name} {part}": command for part, command in typer.main.get_command(found).commands.items()}
    app = typer.Typer()
    app.command()(found)
    return {name: typer.main.get_command(app)}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_option_is_explained_and_every_command_speaks_json(name):
    for typed, command in commands_of(name).items():
        options = {option: one.help for one in command.params for option in one.opts}
        assert all(text for option, text in options.items() if not option.endswith("-completion")), typed
        assert "--json" in options or typed in SILENT


def test_the_list_of_commands_says_what_each_of_them_says():
    for name, (place, line) in COMMANDS.items():
        found = pkgutil.resolve_name(place)
        said = found.info.help if isinstance(found, typer.Typer) else found.__doc__
        assert said.startswith(line), name


# Cities


def test_every_reader_of_cities_is_public():
    for path in SOURCE.glob("cities/read_*.py"):
        name = "read_folder" if path.stem == "read_csv" else path.stem
        assert name in cities.__all__
        assert path.stem == "read_csv" or getattr(cities, name) in cities.READERS.values()


# Budgets


def test_every_budget_rule_is_documented(tmp_path):
    from metricdp.cli import _ledger

    with pytest.raises(mdp.InvalidInputError, match="`beyond` must be one of") as refused:
        mdp.Ledger(tmp_path / "budgets.db", max_epsilon=1, beyond="?")
    rules = re.findall(r"'([\w-]+)'", str(refused.value))
    assert len(rules) >= 2
    (option,) = (one for one in _ledger.LEDGER_OPTIONS["beyond"][0].__metadata__ if hasattr(one, "help"))
    for rule in rules:
        assert f'`beyond="{rule}"`' in page("budgets.md")
        assert f'"{rule}"' in mdp.Ledger.__doc__
        assert rule in option.help


def test_every_parameter_of_a_ledger_has_an_option():
    from dataclasses import fields

    from metricdp.cli import _ledger
    from metricdp.ledger.options import LedgerOptions

    parameters = inspect.signature(mdp.Ledger).parameters
    named = {one.name for one in fields(LedgerOptions)}
    assert named == set(parameters) - {"moved"}  # which is said by `metricdp ledger moved`
    options = {"path": "ledger", "user_key": "user_key_file"}
    assert set(_ledger.LEDGER_OPTIONS) == {options.get(name, name) for name in named}
