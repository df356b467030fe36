"""Every example, run as a user would: what it prints is true, and its picture is one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
GALLERY = ROOT / "docs" / "gallery"


def name_of(example):
    return example.stem.removeprefix("plot_")


def number(pattern, said):
    """Return the number that the only group of `pattern` finds."""
    return float(re.search(pattern, said).group(1))


def first_mechanism(said):
    assert "(8.0, d_2)-mDP" in said
    assert number(r"apart: factor ([\d.]+)", said) <= number(r"allowed: factor ([\d.]+)", said) <= np.e
    assert number(r"distances: ([\d.]+) m", said) > number(r"without privacy ([\d.]+) m", said)


def choosing_epsilon(said):
    lines = [line.split("|") for line in said.splitlines()[1:]]
    radius, epsilon, most, half, error = np.array([[cell.strip(" m") for cell in line] for line in lines], float).T
    assert np.allclose(radius * epsilon, 1000)
    assert (most > half).all()
    assert (half > 0).all()
    for cost in (most, half, error):
        assert (np.diff(cost) > 0).all()


def why_grids_leak(said):
    allowed = number(r"allowed: factor ([\d.]+)", said)
    assert number(r"grid: .* factor ([\d.]+)", said) > 3 * allowed
    assert number(r"spline: .* factor ([\d.]+)", said) <= allowed
    assert re.findall(r"private: (\w+)", said) == ["False", "True"]


def aipo_against_spline(said):
    rows = [line.split() for line in said.splitlines()[1:]]
    assert len(rows) == 12
    for published, certified, spline in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert [row[0] for row in (published, certified, spline)] == ["aipo-e", "aipo", "spline"]
        assert float(published[2]) > float(certified[2]) > float(spline[2]) > float(spline[3])
        assert published[4] == certified[4] == spline[4] == "True"
        assert float(published[5]) < float(certified[5]) < 1
        assert 0.99 < float(spline[5]) <= 1


def sensor_data(said):
    bound = number(r"below ([\d.]+)", said)
    errors = [float(error) for error in re.findall(r"expected error ([\d.]+)", said)]
    assert len(errors) == 4
    assert bound < min(errors)
    assert number(r"estimate: .* off by (\d+)%", said) < number(r"reports: .* off by (\d+)%", said) / 2


def local_privacy(said):
    def losses(which):
        return np.array(re.findall(r"[\d.]+(?= %)", re.search(rf"^{which}: (.*)$", said, re.MULTILINE)[1]), float)

    split, joint, noise, spline = map(losses, ("response, ε split", "response, joint", "laplace-remap", "spline"))
    optimum, bound = losses("optimum under LDP"), losses("bound under mDP")
    constant, floor = losses("the best constant report")[0], number(r"without privacy: ([\d.]+)", said)
    assert len(optimum) == 4
    for one in (split, joint, noise, spline):
        assert (one >= optimum).all()
    assert (noise >= spline).all()
    assert (spline > bound).all()
    assert (bound > optimum).all()
    assert min(split[1], joint[1]) > constant >= spline[0]
    assert floor < optimum[-1] <= joint[-1] < bound[-1]
    assert number(r"spline at ε = 8 ([\d.]+)", said) < number(r"under LDP at ε = 0.8 ([\d.]+)", said) < constant


def elastic(said):
    assert "proved: True" in said
    park, town = (number(rf"(\d+) m in {place}", said) for place in ("the park", "town"))
    assert 125 <= town < park / 2 <= 250
    assert 1 < number(r"give away: up to e\^([\d.]+)", said) <= number(r"between the two: at most e\^([\d.]+)", said)
    loss, other = number(r"map: loss (\d+) m", said), number(r"the same promise: (\d+) m", said)
    assert loss < 0.8 * other
    epsilon, radius = number(r"one ε of ([\d.]+), \d", said), number(r"(\d+) m for everybody", said)
    assert 2 < epsilon < 8
    assert radius * epsilon == pytest.approx(1000, rel=0.01)
    assert 0 < number(r"farther: (\d+) %", said) < 50


def auditing_black_box(said):
    found = re.findall(r"(\w+).*: \d+ answers, .* ε ≥ ([\d.e+]+): (.*)", said)
    assert len(found) == 15
    for program, bound, verdict in found:
        assert verdict == ("refuted" if float(bound) > 8 else "not refuted")
        assert program != "spline" or verdict == "not refuted"
        assert program != "exponential" or float(bound) <= 16
    assert [verdict for _, _, verdict in found[4::5]] == ["not refuted", "refuted", "refuted"]
    assert float(found[-1][1]) > 1000


def positions_3d(said):
    assert "(8.0, d_2)-mDP" in said
    assert number(r"highest: factor ([\d.]+)", said) < 1.1 < number(r"allowed: factor ([\d.]+)", said) <= np.exp(0.8)
    em, spline, floor = (number(rf"{which}: mean distance .* (\d+) m", said) for which in ("em", "spline", "nearest"))
    assert em > spline > floor


def masks_give_away(said):
    found = re.findall(r"(\w+).*: off by (\d+) m after one report, (\d+) m after ten; ε = 4 (.*)", said)
    one, ten = ({row[0]: float(row[which]) for row in found} for which in (1, 2))
    assert list(one) == ["decimals", "snapped", "donut", "noise"]
    assert [row[3] for row in found] == ["refuted", "refuted", "refuted", "not refuted"]
    assert one["decimals"] < one["snapped"] < one["donut"] < one["noise"]
    assert ten["decimals"] < ten["donut"] < one["donut"] / 3
    assert ten["noise"] > ten["donut"]


def taxi_day(said):
    errors = [number(rf"{which}: (\d+) m off", said) for which in ("report", "static remap", "filtered", "smoothed")]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.9 * errors[1]
    assert number(r"day: (\d+) reports", said) * 8 == number(r"together (\d+) per km", said)


# By the name of the example: whether what it prints bears out what its text says.
CHECKS = {
    check.__name__: check
    for check in (
        first_mechanism,
        choosing_epsilon,
        why_grids_leak,
        aipo_against_spline,
        sensor_data,
        local_privacy,
        elastic,
        auditing_black_box,
        positions_3d,
        masks_give_away,
        taxi_day,
    )
}


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example(example, tmp_path):
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(example), str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg", "PYTHONUTF8": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    CHECKS[name_of(example)](answer.stdout)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name_of(example)}.png"]
    picture = image.imread(tmp_path / f"{name_of(example)}.png")
    assert picture.shape[1] == 800
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 50


def test_gallery_shows_every_example():
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) >= 6
    for example in EXAMPLES:
        assert f"[{example.name}]({example.name})" in text
        assert f"](../docs/gallery/{name_of(example)}.png)" in text
    pictures = sorted(path.stem for path in GALLERY.iterdir())
    assert pictures == [name_of(example) for example in EXAMPLES]
    for path in GALLERY.iterdir():
        assert 5000 < path.stat().st_size < 100_000
