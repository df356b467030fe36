"""Every command and every line of Python in docs/density.md, run as printed."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call

TEXT = (Path(__file__).parents[2] / "docs" / "density.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_commands(tmp_path):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    mechanism = mdp.noise(4.0, bounds=[[-1.0, -1.0], [1.0, 1.0]], projection=mdp.cities.load("helsinki").projection)
    mechanism.save(tmp_path / "city.mdp")
    points = mechanism.projection.to_lonlat(rng.uniform(-1, 1, (3000, 2)))
    np.savetxt(tmp_path / "people.csv", points, delimiter=",", header="lon,lat", comments="")
    for line in next(block for kind, block in BLOCKS if kind == "sh").splitlines():
        _, *arguments = shlex.split(line)
        answer = call(*arguments, cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
    cells = np.genfromtxt(tmp_path / "cells.csv", delimiter=",", names=True)
    assert cells.dtype.names == ("lon", "lat", "share", "low", "high", "standard_error", "people")
    assert len(cells) == 16
    assert cells["share"].sum() == pytest.approx(1)
    assert (tmp_path / "density.png").exists()


def test_the_python(capsys):
    (block,) = (block for kind, block in BLOCKS if kind == "python")
    names = {}
    exec(compile(block, "density.md", "exec"), names)
    share = float(re.match(r"(\d+)% of the bars", capsys.readouterr().out).group(1))
    assert share >= 80
    assert len(names["found"].table) == 16
