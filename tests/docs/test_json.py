"""docs/json.md against what commands print: all keys, their types, and errors of every kind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call
from experiments_tools import children_of, command, wait_until
from metricdp.cli import _failures
from metricdp.cli._commands import COMMANDS, _imported
from problems import random_problem

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
SECTIONS = dict(re.findall(r"^#{2,3} ([^\n]+)\n(.*?)(?=^#{2,3} |\Z)", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE))
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", flags=re.MULTILINE)

NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
PLAIN = {"string", "integer", "boolean", "null", "object"}
# Commands whose document has the keys of another section as well.
ALSO = {"certify": "certificate", "cities info": "network", "cities import": "network"}


def of_type(words):
    """Return the JSON Schema of a type as the page writes it."""
    if " or " in words and not words.startswith("list of"):
        return {"anyOf": [of_type(one) for one in words.split(" or ")]}
    if words.endswith(" or null"):
        return {"anyOf": [of_type(words.removesuffix(" or null")), {"type": "null"}]}
    if words.startswith("list of "):
        return {"type": "array", "items": of_type(words.removeprefix("list of "))}
    if words == "number":
        return NUMBER
    return {"type": words} if words in PLAIN else schema(words)


def schema(section):
    """Return the JSON Schema of a section: every key that is not optional is there, and no other."""
    rows = ROW.findall(SECTIONS[section])
    if section in ALSO:
        rows += ROW.findall(SECTIONS[ALSO[section]])
    assert rows, section
    return {
        "type": "object",
        "properties": {key: of_type(words.removesuffix(", optional").strip()) for key, words in rows},
        "required": [key for key, words in rows if not words.endswith(", optional")],
        "additionalProperties": False,
    }


def assert_as_documented(section, document):
    jsonschema_rs.validator_for(schema(section)).validate(document)


# By section: arguments that print a document of the section.
RUNS = {
    "fit": [["fit", "problem.npz", "--epsilon", "1", "--method", "em", "--out", "new.mdp"]],
    "certify": [["certify", "em.mdp"], ["certify", "ground.mdp"], ["certify", "lp.mdp"], ["certify", "map.mdp"],
                ["certify", "em.mdp", "--between", "1,1", "2,2"], ["certify", "map.mdp", "--between", "10.0,50.0", "10.01,50.01"], ["certify", "noise.mdp"]],
    "audit": [["audit", "em.mdp", "--pairs", "100"], ["audit", "lp.mdp", "--pairs", "100", "--slack", "0.01"]],
    "audit --samples": [["audit", "em.mdp", "--samples", "10000"]],
    "attack": [["attack", "em.mdp", "noise.mdp", "--reports", "1,3", "--draws", "20"], ["attack", "ground.mdp", "--city", "town"],
               ["attack", "ground.mdp", "--reports", "1", "--traces", "walks.csv", "--public", "walks.csv", "--cell", "300m"]],
    "compare": [
        ["compare", "problem.npz", "--epsilons", "1", "--methods", "em,lp.mdp,ground.mdp", "--clusters", "5", "--workers", "1",
         "--cache", "cache"],
    ],
    "info": [["info", "em.mdp"], ["info", "ground.mdp"], ["info", "map.mdp"]],
    "epsilon": [
        ["epsilon", "problem.npz", "--radius", "1", "--method", "em"],
        ["epsilon", "problem.npz", "--error", "1", "--reports", "2", "--method", "em"],
    ],
    "epsilon --by-density": [["epsilon", "problem.npz", "--by-density", "people=20,least=0.5,most=2", "--out", "map.json"]],
    "perturb": [["perturb", "em.mdp", "points.csv", "out.csv"]],
    "density": [["density", "em.mdp", "reports.csv", "--cell", "4"]],
    "ledger show": [["ledger", "show", "ledger.db"]],
    "ledger user": [["ledger", "user", "ledger.db", "ann"]],
    "ledger export": [["ledger", "export", "ledger.db", "people.csv"]],
    "ledger moved": [["ledger", "moved", "ledger.db"]],
    "export page": [["export", "page", "spline.mdp", "--city", "town", "--out", "page"]],
    "cities list": [["cities", "list"]],
    "cities info": [["cities", "info", "town"]],
    "cities import": [["cities", "import", "town", "other"]],
    "keys add": [["keys", "add", "ann"]],
    "keys list": [["keys", "list", "--file", "known.json"]],
    "keys revoke": [["keys", "revoke", "bob", "--file", "known.json"]],
}  # fmt: skip
# Checked by tests of their own below.
SLOW = {"demo", "reproduce", "serve"}


def commands():
    """Return every command of the registry, those of groups with the group's name."""
    for name in COMMANDS:
        found = _imported(name)
        if hasattr(found, "commands"):
            yield from (f"{name} {one}" for one in found.commands)
        else:
            yield name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, problem = tmp_path_factory.mktemp("json"), random_problem(0)
    np.savez(place / "problem.npz", records=problem.records, outputs=problem.outputs, loss=problem.loss)
    np.savetxt(place / "points.csv", problem.records, delimiter=",", header="x,y", comments="")
    (place / "town").mkdir()
    (place / "town" / "nodes.csv").write_text("id,lon,lat\n1,10.0,50.0\n2,10.01,50.0\n3,10.01,50.01\n")
    (place / "town" / "edges.csv").write_text("u,v,length_m\n1,2,720\n2,3,1120\n")
    walks = [f"{who},{60 * t},{10 + 0.0001 * t},{50 + 0.0003 * (t % 20)}" for who in range(3) for t in range(60)]
    (place / "walks.csv").write_text("\n".join(["id,unix_s,lon,lat", *walks]))
    em = mdp.fit(problem, 1.0, "em")
    em.save(place / "em.mdp")
    mdp.fit(problem, 1.0, "lp", cells=2, certify=False).save(place / "lp.mdp")
    mdp.noise(1.0, bounds=problem.bounds).save(place / "noise.mdp")
    town = mdp.cities.load(place / "town").problem(outputs=2, tasks=2)
    mdp.fit(town, 1.0, "em").save(place / "ground.mdp")
    (west, south), (east, north) = town.bounds
    halves = mdp.EpsilonMap([[west, 0, east], [south, north]], [[1.0], [3.0]])
    mdp.fit(town, halves, "spline", cells=4).save(place / "map.mdp")
    rows = [f"{k},1.0,1.0" for k in np.random.default_rng(0).integers(0, 5, 200)]
    (place / "reports.csv").write_text("\n".join(["output_id,x,y", *rows]))
    mdp.fit(town, 1.0, "spline", cells=2).save(place / "spline.mdp")
    with mdp.Ledger(place / "ledger.db", max_epsilon=5) as ledger:
        ledger.sample(em, ["ann", "bob"], [[1.0, 1.0], [2.0, 2.0]])
    call("keys", "add", "bob", "--file", "known.json", cwd=place)
    return place


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_is_documented_and_run(name):
    assert name in SECTIONS, f"add a section '## {name}' with the keys that it prints to docs/json.md"
    assert name in {*RUNS, *SLOW}, f"add arguments for '{name}' to RUNS in tests/docs/test_json.py, so that it is run"


def test_the_page_describes_nothing_that_is_gone():
    page = PAGE.read_text()
    described = set(re.findall(r"^## (.+)$", page, flags=re.MULTILINE)) - {
        "error",
        "audit --samples",
        "epsilon --by-density",
    }
    assert described == set(commands())
    used = " ".join(words for section in SECTIONS.values() for _, words in ROW.findall(section))
    parts = set(re.findall(r"^### (.+)$", page, flags=re.MULTILINE))
    assert parts == {part for part in parts if part in used or part in ALSO.values()}


@pytest.mark.parametrize("section", RUNS)
def test_what_a_command_prints_is_what_the_page_says(folder, section):
    for arguments in RUNS[section]:
        answer = call(*arguments, "--json", cwd=folder)
        assert answer.returncode in (0, 1), answer.stdout
        document = json.loads(answer.stdout)
        for one in document if isinstance(document, list) else [document]:
            assert_as_documented(section, one)


def test_the_page_is_not_lax(folder):
    good = json.loads(call("certify", "em.mdp", "--json", cwd=folder).stdout)
    assert_as_documented("certify", good)
    for bad in (
        good | {"more": 1},
        good | {"holds": 1},
        good | {"metres": {}},
        {"holds": True},
        good | {"epsilon": "1"},
    ):
        with pytest.raises(jsonschema_rs.ValidationError):
            assert_as_documented("certify", bad)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["fit", "problem.npz", "--epsilon", "-1"], "InvalidInputError", "`--epsilon` must be a positive finite number"),
        (["fit", "problem.npz", "--epsilon", "one"], "UsageError", "Invalid value for '--epsilon'"),
        (["fit", "problem.npz", "--epsilon", "0.5 km"], "UsageError", "`metricdp epsilon --radius 0.5km` says which"),
        (["fit", "problem.npz", "--epsilon", "1", "--executor", "tcp://a:1"], "InvalidInputError", "must be dask://HOST"),
        (["fit", "problem.npz"], "InvalidInputError", "a number as `--epsilon`, or a file as `--epsilon-map`"),
        (["fit", "problem.npz", "--epsilon", "1", "--magic"], "UsageError", "No such option: --magic"),
        (["fit", "problem.npz", "--epsilon", "1", "--method", "lp", "--cells", "2"], "NotCertified", "metricdp audit"),
        (["certify", "none.mdp"], "FileNotFoundError", "none.mdp"),
        (["certify", "points.csv"], "InvalidInputError", "is not a mechanism file"),
        (["perturb", "lp.mdp", "points.csv", "x.csv"], "NotCertified", "Commands use proved mechanisms only"),
        (["magic"], "UsageError", "No such command 'magic'"),
        (["keys", "revoke", "nobody", "--file", "known.json"], "InvalidInputError", "nobody"),
    ],
)  # fmt: skip
def test_an_error_is_one_document_on_stdout(folder, arguments, kind, words):
    answer = call(*arguments, "--json", cwd=folder)
    assert answer.returncode == 2
    document = json.loads(answer.stdout)
    assert_as_documented("error", document)
    assert document["error"]["type"] == kind
    assert words in document["error"]["message"]
    assert document["error"]["exit_code"] == 2
    assert "certify=False" not in answer.stdout
    assert answer.stderr == ""
    if kind == "NotCertified":
        assert len(document["error"]["certificate"]["worst_where"]["points"]) == 2
    without = call(*arguments, cwd=folder)
    assert (without.returncode, without.stdout) == (2, "")
    assert "certify=False" not in without.stderr


def test_a_word_after_two_dashes_is_no_option():
    assert _failures.wants_json(["fit", "--json"])
    assert not _failures.wants_json(["fit", "--", "--json"])


def test_a_fault_of_the_program_is_a_document_and_a_traceback(folder):
    code = """
import sys
from metricdp.cli import certify, main
def broken(path): raise KeyError("12.4924, 41.8902")
certify.read_file = broken
sys.argv = ["metricdp", "certify", "em.mdp", "--json"]
main()
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert_as_documented("error", json.loads(answer.stdout))
    assert json.loads(answer.stdout)["error"]["type"] == "InternalError"
    assert "12.4924" not in answer.stdout
    assert "Traceback" in answer.stderr


@pytest.mark.skipif("helsinki" not in mdp.cities.available(), reason="needs the extra `cities`")
@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, "Interrupted"), (signal.SIGTERM, "Terminated")])
def test_a_command_that_is_stopped_prints_a_document_too(tmp_path, number, kind):
    arguments = ["--city", "helsinki", "--epsilons", "4,8", "--methods", "auto", "--workers", "2", "--cache", tmp_path]
    process = subprocess.Popen(
        command("compare", *arguments, "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        wait_until(lambda: len(children_of(process.pid)) >= 3, process)
        os.killpg(process.pid, number)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    document = json.loads(out)
    assert_as_documented("error", document)
    assert (document["error"]["type"], document["error"]["exit_code"]) == (kind, 128 + number)


def test_serve_prints_where_it_listens(folder):
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    with subprocess.Popen(
        command("serve", folder / "em.mdp", "--port", "0", "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert_as_documented("serve", json.loads(line))


@pytest.mark.slow
@pytest.mark.skipif("helsinki" not in mdp.cities.available(), reason="needs the extra `cities`")
@pytest.mark.parametrize("name", ["demo", "reproduce"])
def test_the_long_commands(tmp_path, name):
    pytest.importorskip("matplotlib")
    answer = call(name, *(["utility", "--quick"] if name == "reproduce" else []), "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout
    assert_as_documented(name, json.loads(answer.stdout))
