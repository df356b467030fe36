"""What is installed: the wheel, what runs without any extra, and the image of the service."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from install_tools import build_wheel
from metricdp._version import __version__

ROOT = Path(__file__).parents[2]

# What the extras bring, as modules.
EXTRAS = (
    "osmnx", "pyrosm", "geopandas", "shapely", "networkx", "matplotlib", "distributed", "dask", "fastapi", "starlette",
    "uvicorn", "uvloop", "httptools", "limits", "prometheus_client",
)  # fmt: skip

# As if only the dependencies were installed, and metricdp from the wheel: another copy would be found after it.
MINIMAL = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None
sys.path.insert(0, sys.argv.pop(1))
import metricdp
assert metricdp.__file__.startswith(sys.path[0]), metricdp.__file__
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def minimal(installed, program, *arguments, cwd, timeout=120):
    command = [sys.executable, "-c", MINIMAL + program, installed, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)


def command_line(installed, *arguments, cwd):
    return minimal(installed, "from metricdp.cli import main; main()", *arguments, cwd=cwd)


def test_the_wheel_is_whole(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = ROOT / "src"
    expected = {
        str(path.relative_to(sources))
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # The package that draws on devices has its source in one place, and goes with the page.
    expected |= {f"metricdp/service/page/core/{path.name}" for path in (ROOT / "js" / "src").iterdir()}
    assert {name for name in names if not name.startswith("metricdp-")} == expected
    assert {
        "metricdp/py.typed",
        *(f"metricdp/cities/data/helsinki/{one}.csv.xz" for one in ("nodes", "edges")),
    } <= names
    assert wheel.stat().st_size < 2_000_000


def test_a_page_is_exported_from_what_is_installed(installed, tmp_path):
    """Without the extra `service`, and with the modules that the wheel brought."""
    problem = mdp.Problem(np.random.default_rng(0).random((20, 2)), np.eye(2), "euclidean", bounds=[[0, 0], [1, 1]])
    mdp.fit(problem, 1.0, "spline", cells=3).save(tmp_path / "small.mdp")
    answer = command_line(installed, "export", "page", "small.mdp", "--out", "page", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    core = {path.name for path in (tmp_path / "page" / "page" / "core").iterdir()}
    assert core == {path.name for path in (ROOT / "js" / "src").glob("*.js")}


def test_what_needs_no_extra_runs_without(installed, tmp_path):
    """The README's five lines with a closed form instead of the search for the best mechanism."""
    program = """
import metricdp as mdp
problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
mechanism = mdp.fit(problem, epsilon=8, method="em")
print(mdp.certify(mechanism).claim)
print(mechanism.sample(problem.records[:3]))
"""
    said = minimal(installed, program, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "ε = 8" in said.stdout or "8" in said.stdout.split("\n")[0]
    (tmp_path / "points.csv").write_text("lon,lat\n24.94,60.17\n24.95,60.16\n")
    for arguments in (
        ["cities", "list"],
        ["fit", "--city", "helsinki", "--epsilon", "8", "--method", "em", "--out", "helsinki.mdp"],
        ["certify", "helsinki.mdp"],
        ["perturb", "helsinki.mdp", "points.csv", "out.csv"],
    ):
        said = command_line(installed, *arguments, cwd=tmp_path)
        assert said.returncode == 0, said.stderr
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_the_readmes_first_lines_run_without_any_extra(installed, tmp_path):
    (program,) = re.findall(
        r"## Five lines of Python\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    said = minimal(installed, program, cwd=tmp_path, timeout=600)
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["serve", "helsinki.mdp"], "service"),
        (["demo"], "plots"),
        (["compare", "--city", "helsinki", "--epsilons", "8", "--figures", "pictures"], "plots"),
        (["reproduce", "--quick", "--out", "paper"], "plots"),
        (["cities", "import", "Ghent", "ghent", "--place"], "cities"),
        (["cities", "info", "x.osm.pbf"], "cities"),
        (["perturb", "helsinki.mdp", "folder", "private", "--cluster", "tcp://127.0.0.1:1"], "cluster"),
    ],
)
def test_what_needs_an_extra_says_so_in_one_sentence(installed, tmp_path, arguments, extra):
    assert (
        command_line(
            installed,
            "fit",
            "--city",
            "helsinki",
            "--epsilon",
            8,
            "--method",
            "em",
            "--out",
            "helsinki.mdp",
            cwd=tmp_path,
        ).returncode
        == 0
    )
    (tmp_path / "x.osm.pbf").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "points.csv").write_text("lon,lat\n24.94,60.17\n")
    said = command_line(installed, *arguments, cwd=tmp_path)
    assert said.returncode == 2, said.stderr
    (line,) = [line for line in said.stderr.splitlines() if "error: " in line]
    assert f"pip install 'metricdp[{extra}]'" in line
    assert "Traceback" not in said.stderr


# The image


DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FINAL = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]


def exec_form(instruction):
    return json.loads(re.search(rf"^{instruction} (\[.*\])$", FINAL, re.MULTILINE)[1])


def test_the_image_has_no_root_and_no_tools():
    assert re.search(r"^USER 10001:10001$", FINAL, re.MULTILINE)
    assert FINAL.index("\nUSER ") < FINAL.index("\nENTRYPOINT ")
    assert not re.search(r"\b(pip|apt-get|gcc|curl)\b", FINAL)
    assert exec_form("VOLUME") == ["/mechanisms", "/ledger", "/keys"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored  # everything but what is named
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert {f"!{name}" for line in copied for name in line.split()} <= set(ignored)


def test_the_image_serves_and_is_healthy(tmp_path):
    """What the image would run, with its folders elsewhere and on a free port."""
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from cli_tools import call
    from service_tools import city, running

    for name in ("mechanisms", "ledger", "keys"):
        (tmp_path / name).mkdir()
    city().save(tmp_path / "mechanisms" / "mechanism.mdp")
    assert call("keys", "add", "gateway", "--file", tmp_path / "keys" / "keys.json", cwd=tmp_path).returncode == 0
    program, command, *options = exec_form("ENTRYPOINT")
    assert (program, command) == ("metricdp", "serve")
    given = dict(zip(options[:-1:2], options[1::2], strict=True))
    assert given == {"--host": "0.0.0.0", "--port": "8080"}
    rest = [re.sub(r"^/(mechanisms|ledger|keys)/", rf"{tmp_path}/\1/", one) for one in exec_form("CMD")]
    with running(tmp_path, *rest, "--json", "--max-epsilon", "200") as service:
        (health,) = re.findall(r"HEALTHCHECK .*?CMD (\[.*?\])\n", FINAL, re.DOTALL)
        check = [one.replace(":8080", f":{service.port}") for one in json.loads(health)]
        assert check[0] == "python"
        assert subprocess.run([sys.executable, *check[1:]], timeout=30, check=False).returncode == 0
        assert service.stop() == 0
        assert (
            subprocess.run([sys.executable, *check[1:]], timeout=30, check=False, capture_output=True).returncode != 0
        )


def test_the_image_is_built_as_documented():
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    assert "docker build" in page
    for folder in exec_form("VOLUME"):
        assert f":{folder}" in page
    assert shlex.split(re.search(r"pip install (.*)$", DOCKERFILE, re.MULTILINE)[1])[-1] == ".[service]"


# Citing


def test_the_citation_is_of_this_version():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in cited
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all(f"  - {word}\n" in cited for word in project["keywords"])
    assert f'"{project["urls"]["Paper"]}"' in cited
