"""docs/elastic.md: its code runs, and its figures are those of the example that it names."""

import json
import re
import shlex
from pathlib import Path

import pytest

import metricdp as mdp
from cli_tools import call
from metricdp.files.map_files import map_from_dict
from metricdp.geometry.projection import Equirectangular

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "elastic.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_python():
    (block,) = blocks("python")
    names = {}
    exec(compile(block, "elastic.md", "exec"), names)
    certificate = names["certificate"]
    assert certificate.holds
    assert certificate.paths.most == 8
    # The last two lines, whose values a reader sees: the park is protected farther than 1/8 km.
    assert 0.2 < certificate.radius_lonlat([24.937, 60.176]) < 0.5
    assert 1 < certificate.between_lonlat([24.937, 60.176], [24.948, 60.166]) < 8
    assert mdp.EpsilonMap.by_density(names["problem"], people=50, least=2, most=8, cells=[8, 13]) == names["local"]


def test_commands(tmp_path):
    for block in blocks("sh"):
        for line in block.splitlines():
            answer = call(*shlex.split(line)[1:], cwd=tmp_path)
            assert answer.returncode == 0, answer.stderr
    assert "Between these two places: no report is more than e^" in " ".join(answer.stdout.split())
    assert {path.name for path in tmp_path.iterdir()} == {"map.json", "map.png", "elastic.mdp"}


def test_the_example_of_a_file_is_one():
    (block,) = blocks("json")
    found = map_from_dict(json.loads(block), Equirectangular(24.945, 60.17))
    assert found.shape == (3, 2)
    assert (found.min, found.max) == (4, 12)


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\((?!https)([^)#]+)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize("words", ["never follow one person", "The map is public", "path metric"])
def test_it_says_what_matters(words):
    assert words in TEXT
