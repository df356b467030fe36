"""The conda recipe asks for what pyproject.toml asks for."""

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
RECIPE = yaml.safe_load((ROOT / "release" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
# conda-forge calls some packages otherwise.
ELSEWHERE = {"h3": "h3-py", "matplotlib": "matplotlib-base"}


def wanted(lines):
    """Return requirements of pyproject.toml as conda writes them."""
    found = {}
    for line in lines:
        one = Requirement(line)
        name = canonicalize_name(one.name)
        found[ELSEWHERE.get(name, name)] = str(one.specifier)
    return found


def asked(part):
    """Return requirements of the recipe, without those on Python itself and pip."""
    pairs = (line.split() for line in RECIPE["requirements"][part] if line.split()[0] not in {"python", "pip"})
    return {canonicalize_name(name): bound for name, bound in pairs}


def test_what_it_runs_with():
    assert asked("run") == wanted(PROJECT["dependencies"])


def test_what_extras_need_must_be_new_enough():
    extras = PROJECT["optional-dependencies"]
    assert asked("run_constraints") == wanted(line for name, lines in extras.items() if name != "all" for line in lines)


def test_what_it_is_built_with():
    assert asked("host") == wanted(PYPROJECT["build-system"]["requires"])


def test_python_command_licence_and_words():
    assert PROJECT["requires-python"] == f">={RECIPE['context']['python_min']}"
    ((name, command),) = PROJECT["scripts"].items()
    assert RECIPE["build"]["python"]["entry_points"] == [f"{name} = {command}"]
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert (ROOT / "release" / "conda" / RECIPE["source"]["path"]).resolve() == ROOT
