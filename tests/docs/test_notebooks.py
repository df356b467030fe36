"""The notebooks of docs/notebooks: they run from top to bottom, and what is kept of their outputs is small."""

import json
import os
import re
from pathlib import Path

import pytest

from docs_tools import DOCS

FOLDER = DOCS / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def text_of(notebook):
    """Return all that the cells of a notebook have printed."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs)


def run(path, folder, monkeypatch, data):
    """Run a notebook in a fresh kernel, with or without a folder of data; return what it printed."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("METRICDP_DATA", data)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(DOCS.parent / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert not list(folder.iterdir())
    return text_of(notebook)


def number(pattern, said):
    return float(re.search(pattern, said)[1])


def check_taxi(said):
    errors = [number(rf"{which}: (\d+) m off", said) for which in ("report", "static remap", "filtered", "smoothed")]
    assert errors == sorted(errors, reverse=True)
    assert errors[3] < number(r"looking back, (\d+) m off", said)


@pytest.mark.slow
def test_a_city_in_ten_minutes(tmp_path, monkeypatch):
    said = run(FOLDER / "city-in-ten-minutes.ipynb", tmp_path, monkeypatch, "")
    losses = [number(rf"{which}: (\d+) m", said) for which in ("exponential", "noise with remap", "spline")]
    assert number(r"mechanism is below (\d+) m", said) <= min(losses)
    assert losses[0] == max(losses)
    answers = [int(one) for one in re.search(r"\[([ \d-]+)\]\s*$", said, re.MULTILINE)[1].split()]
    assert answers[::2] == answers[1::2]
    assert answers[6:] == [-1] * 4
    assert min(answers[:6]) >= 0


@pytest.mark.slow
def test_comparing_own_mechanisms(tmp_path, monkeypatch):
    said = run(FOLDER / "comparing-own-mechanisms.ipynb", tmp_path, monkeypatch, "")
    assert number(r"factor ([\d.]+)", said) > number(r"allowed ([\d.]+)", said)
    assert re.search(r"claimed: 4.0, at least: \d{3,}, broken: True", said)


def test_a_day_of_a_made_up_taxi(tmp_path, monkeypatch):
    said = run(FOLDER / "day-of-a-taxi.ipynb", tmp_path, monkeypatch, "")
    assert "made up, on the streets of Helsinki" in said
    check_taxi(said)


@pytest.mark.slow
def test_a_day_of_a_taxi_in_san_francisco(tmp_path, monkeypatch):
    data = os.environ.get("METRICDP_DATA", "")
    if not Path(data, "san-francisco-taxis", "traces.csv.xz").is_file():
        pytest.skip("needs the folder `san-francisco-taxis` where METRICDP_DATA points")
    said = run(FOLDER / "day-of-a-taxi.ipynb", tmp_path, monkeypatch, data)
    assert "San Francisco" in said
    check_taxi(said)


def test_three_notebooks_are_listed():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        assert f"]({path.name})" in index
        assert f"\n{path.stem}\n" in index


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_whole(path):
    assert path.stat().st_size < 200_000
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert "error" not in kinds
    streams = [one for cell in code for one in cell["outputs"] if one["output_type"] == "stream"]
    assert all(one["name"] == "stdout" for one in streams), "warnings are kept"
