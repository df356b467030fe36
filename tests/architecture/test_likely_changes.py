"""The likely changes of CONTRIBUTING.md other than a mechanism: a toy of each, made in the named place alone.

Each toy is put where CONTRIBUTING.md says that the real thing goes. What the tests then look at is in other rooms.
"""

import dataclasses
import json
import runpy
import typing

import numpy as np
import pytest

import metricdp as mdp
from metricdp.cli import fit as fit_module
from metricdp.files import reading
from metricdp.mechanisms import families
from metricdp.optimise import engines
from metricdp.optimise.engines import highs
from metricdp.optimise.engines.base import Engine
from problems import random_problem


@pytest.fixture
def problem():
    return random_problem(0, n_records=20, n_outputs=4)


# A new engine


def solve_toy(program, *, time_limit=None):
    return dataclasses.replace(highs.ENGINE.linear(program, time_limit=time_limit), engine="toy")


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(engines, "ENGINES", (*engines.ENGINES, Engine(name="toy", linear=solve_toy)))
    return "toy"


@pytest.mark.parametrize("method", ["aipo-e", "lp"])
def test_an_engine_is_offered_to_every_method_whose_programs_it_solves(engine, problem, method):
    assert engine in mdp.METHODS[method].options.solvers()
    assert mdp.fit(problem, 1.0, method, cells=2, solver=engine, certify=False).report["solver"] == engine


def test_an_engine_is_not_offered_where_it_cannot_solve(engine, problem):
    assert engine not in mdp.METHODS["spline"].options.solvers()
    with pytest.raises(mdp.InvalidInputError, match="`solver` must be one of"):
        mdp.fit(problem, 1.0, "spline", cells=2, solver=engine)


def test_help_offers_an_engine(engine):
    # Run anew, because help is put together when the module is imported. The import itself is at the top of this file:
    # here it would be the process's first one, and the toy would stay in the help that other tests see.
    command = runpy.run_path(fit_module.__file__)["fit_command"]
    (option,) = typing.get_type_hints(command, include_extras=True)["solver"].__metadata__
    assert engine in option.help


def test_an_engine_serves_lower_bounds_too(engine, problem):
    by_default, by_toy = (mdp.lower_bound(problem, 1.0, clusters=5, solver=solver) for solver in ("highs", engine))
    assert by_toy == pytest.approx(by_default)


# A new file format number


def test_a_format_number_is_a_reader(monkeypatch, problem, tmp_path):
    """Format 4 here is format 3 under another name, which is enough to see it read, hashed and proved."""
    mdp.fit(problem, 1.0, "em").save(tmp_path / "three.mdp")
    text, arrays = reading.read_archive(tmp_path / "three.mdp")
    header = json.loads(text) | {"format": 4}
    from metricdp.files.archive import write_archive

    with (tmp_path / "four.mdp").open("wb") as stream:
        write_archive(stream, json.dumps(header).encode(), arrays)
    with pytest.raises(mdp.InvalidInputError, match="format 4 is not known to this version"):
        mdp.load(tmp_path / "four.mdp")

    def read_format_4(header, _text, arrays):
        return reading.READERS[3](header | {"format": 3}, text, arrays)

    monkeypatch.setitem(reading.READERS, 4, read_format_4)
    assert reading.read_file(tmp_path / "four.mdp").format == 4
    assert mdp.files.content_hash(tmp_path / "four.mdp") == mdp.files.content_hash(tmp_path / "three.mdp")
    assert mdp.certify(mdp.load(tmp_path / "four.mdp")).holds


# A new norm


@pytest.mark.parametrize("method", [name for name, method in mdp.METHODS.items() if method.private and name != "auto"])
def test_every_order_of_norm_flows_from_the_problem_to_the_certificate(method, tmp_path):
    """p = 1.7 is no special case anywhere: `Problem` and `geometry.norms` say what it means, and all else follows."""
    problem = random_problem(0, n_records=20, n_outputs=4, p=1.7)
    known = {field.name for field in dataclasses.fields(mdp.METHODS[method].options)}
    small = {name: number for name, number in {"cells": 2, "squares": 8}.items() if name in known}
    mechanism = mdp.fit(problem, 0.5, method, **small)
    mechanism.save(tmp_path / "one.mdp")
    assert mdp.load(tmp_path / "one.mdp").p == 1.7
    assert mdp.certify(mechanism).p == 1.7
    if "squares" not in known:  # rows of Laplace noise take long for orders other than 1, 2 and ∞
        assert not mdp.audit(mechanism, pairs=20).violation_ratio


# A new proof


def refuse(mechanism):
    from metricdp.certificates.claims import Finding, refused

    claim = refused(mechanism, "the toy proof refuses everything.")
    return Finding(holds=False, claim=claim, worst_ratio=2.0, worst_where={}, checked=1)


def test_a_proof_is_named_once_and_demanded_everywhere(monkeypatch, problem, tmp_path):
    mdp.fit(problem, 1.0, "em").save(tmp_path / "em.mdp")
    (family,) = (one for one in families.families() if one.kind == "exponential")
    from metricdp.mechanisms import exponential

    monkeypatch.setattr(exponential, "FAMILY", dataclasses.replace(family, prove_at=f"{__name__}:refuse"))
    for demand in (lambda: mdp.fit(problem, 1.0, "em"), lambda: mdp.load(tmp_path / "em.mdp")):
        with pytest.raises(mdp.NotCertified, match="the toy proof refuses everything"):
            demand()
    assert not mdp.certify(mdp.load(tmp_path / "em.mdp", certify=False)).holds
    assert not mdp.compare(problem, [1.0], ["em"], clusters=4, pairs=20)["certified"].any()


# A new lower bound


def test_a_lower_bound_is_a_function_in_the_table(monkeypatch, problem):
    from metricdp.bounds import choosing

    monkeypatch.setattr(
        choosing, "BOUNDS", {**choosing.BOUNDS, "toy": lambda problem, budget, options: budget.epsilon / 8}
    )
    assert mdp.lower_bound(problem, 2.0, kind="toy") == 0.25
    with pytest.raises(mdp.InvalidInputError, match="toy"):
        mdp.lower_bound(problem, 2.0, kind="another")


# A new column of `compare`


def test_a_column_is_measured_and_named(monkeypatch, problem, tmp_path):
    from metricdp.experiments import comparing, measuring

    def measure(problem, job):
        return measuring.measure(problem, job) | ({"toy": 7.0} if job.kind == "fit" else {})

    monkeypatch.setattr(comparing, "measure", measure)
    monkeypatch.setattr(comparing, "_COLUMNS", (*comparing._COLUMNS, "toy"))
    for _ in range(2):  # the second time from the cache
        frame = mdp.compare(problem, [1.0], ["em"], clusters=4, pairs=20, cache=tmp_path)
        assert frame["toy"].tolist() == [7.0]


# A new HTTP route


def test_a_route_is_guarded_counted_and_documented_by_being_there(monkeypatch, problem, tmp_path):
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from fastapi import Response

    from metricdp.service import Settings
    from metricdp.service.http import app as application
    from metricdp.service.http import routes
    from metricdp.service.state.keys import add_key
    from service_tools import with_service

    def with_toy(*given):
        router = routes.api_routes(*given)

        @router.get("/toy", summary="A toy")
        async def toy(_):
            return Response("{}", media_type="application/json")

        return router

    monkeypatch.setattr(application, "api_routes", with_toy)
    mdp.fit(problem, 1.0, "em").save(tmp_path / "em.mdp")
    key = add_key(tmp_path / "keys.json", "gateway")

    async def ask(client):
        answers = [await client.get("/v1/toy", headers=headers) for headers in ({}, {"Authorization": f"Bearer {key}"})]
        wrong = await client.post("/v1/toy", json={}, headers={"Authorization": f"Bearer {key}"})
        schema = await client.get("/openapi.json", headers={"Authorization": f"Bearer {key}"})
        return (
            [answer.status_code for answer in (*answers, wrong)],
            schema.json()["paths"],
            client.app.state.metrics.text(),
        )

    settings = Settings(files=(tmp_path / "em.mdp",), keys=tmp_path / "keys.json", access_log=False)
    codes, paths, counted = with_service(settings, ask)
    assert codes == [401, 200, 405]
    assert paths["/v1/toy"]["get"]["summary"] == "A toy"
    assert 'route="/v1/toy"' in (counted if isinstance(counted, str) else counted.decode())


# A new option of the command line


def test_an_option_is_a_parameter_of_its_command(monkeypatch):
    from typing import Annotated

    import typer
    from typer.testing import CliRunner

    from metricdp.cli import _commands, app
    from metricdp.cli import certify as module
    from metricdp.cli._problem import MechanismFile

    def certify_command(
        file: MechanismFile, *, toy_size: Annotated[int, typer.Option(help="How large the toy is.")] = 3
    ) -> None:
        if toy_size < 0:
            raise mdp.InvalidInputError("`toy_size` must be at least 0, got -1.")
        typer.echo(f"{file} {toy_size}")

    monkeypatch.setattr(module, "certify_command", certify_command)
    _commands._imported.cache_clear()
    try:
        runner = CliRunner()
        assert "How large the toy is." in runner.invoke(app, ["certify", "--help"]).output
        assert runner.invoke(app, ["certify", "one.mdp", "--toy-size", "5"]).output == "one.mdp 5\n"
        assert "`--toy-size`" in str(runner.invoke(app, ["certify", "one.mdp", "--toy-size", "-1"]).exception)
    finally:
        _commands._imported.cache_clear()


# A new budget rule


def test_a_budget_rule_is_known_to_the_ledger_alone(monkeypatch, problem, tmp_path):
    """The command line and the service hand the name of a rule on, so that no second list of rules must be kept."""
    from typer.testing import CliRunner

    from metricdp.cli import app
    from metricdp.ledger import budgets

    mdp.fit(problem, 1.0, "em").save(tmp_path / "em.mdp")
    (tmp_path / "points.csv").write_text("id,x,y\nann,1,1\nann,2,2\n")
    arguments = [
        "perturb", tmp_path / "em.mdp", tmp_path / "points.csv", tmp_path / "out.csv", "--user-column", "id",
        "--ledger", tmp_path / "budgets.db", "--max-epsilon", 1, "--beyond", "toy",
    ]  # fmt: skip
    refused = CliRunner().invoke(app, list(map(str, arguments)))
    assert "`--beyond` must be one of" in str(refused.exception)

    class Ledger(budgets.Ledger):
        """One that answers output 3 to whoever has spent everything."""

        def __init__(self, path, *, beyond="refuse", **terms):
            self.toy = beyond == "toy"
            super().__init__(path, beyond="refuse" if self.toy else beyond, **terms)

        def sample(self, *given, **options):
            answers = super().sample(*given, **options)
            return np.where(answers < 0, 3, answers) if self.toy else answers

    monkeypatch.setattr("metricdp.ledger.options.Ledger", Ledger)
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[2].startswith("3,")
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from metricdp.service import LedgerOptions

    assert LedgerOptions(tmp_path / "others.db", 1.0, beyond="toy").open().toy


# A new source of cities


def test_a_city_source_is_a_reader_by_its_ending(monkeypatch, tmp_path):
    """A toy reader in the table of `cities`: names, the command line and problems follow."""
    from typer.testing import CliRunner

    from metricdp import cities
    from metricdp.cli import app

    def read_toy(path):
        lon, lat = np.loadtxt(path, unpack=True)
        ids = np.arange(len(lon))
        return cities.RoadNetwork(path.stem, ids, lon, lat, ids, np.roll(ids, 1), np.full(len(lon), 100.0))

    (tmp_path / "town.toy").write_text("24.90 60.16\n24.92 60.17\n24.94 60.16\n24.92 60.15\n")
    with pytest.raises(mdp.InvalidInputError, match="`name_or_path` must be a folder"):
        cities.load(tmp_path / "town.toy")
    add_city_source(monkeypatch, ".toy", read_toy)
    assert cities.load(tmp_path / "town.toy").problem(outputs=2, tasks=2, seed=0).n_outputs == 2
    told = CliRunner().invoke(app, ["cities", "info", str(tmp_path / "town.toy"), "--json"])
    assert json.loads(told.output)["nodes"] == 4
    arguments = ["cities", "import", str(tmp_path / "town.toy"), str(tmp_path / "town")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert cities.load(tmp_path / "town").n_edges == 4


def add_city_source(monkeypatch, ending, reader):
    from metricdp import cities

    monkeypatch.setitem(cities.READERS, ending, reader)


# A new format of points


def test_a_format_of_points_is_a_line_of_the_table(monkeypatch, problem, tmp_path):
    from metricdp.perturb import Options, perturb_file, perturb_folder

    mechanism = mdp.fit(problem, 1.0, "em")
    (tmp_path / "points.csv").write_text("x,y\n1,1\n2,2\n3,3\n")
    projected = Options(coordinates="projected")
    with pytest.raises(mdp.InvalidInputError, match=r"`target` must be .* a file that ends in"):
        perturb_file(mechanism, tmp_path / "points.csv", tmp_path / "points.toy", projected)
    add_format_of_points(monkeypatch, ".toy")
    perturb_file(mechanism, tmp_path / "points.csv", tmp_path / "points.toy", projected)
    (tmp_path / "folder").mkdir()
    (tmp_path / "points.toy").rename(tmp_path / "folder" / "points.toy")
    perturb_folder(mechanism, tmp_path / "folder", tmp_path / "private", projected)
    perturb_file(mechanism, tmp_path / "private" / "points.toy", tmp_path / "again.csv", projected)
    assert len((tmp_path / "again.csv").read_text().splitlines()) == 4


def add_format_of_points(monkeypatch, ending):
    """Add a format that is Arrow's under another ending."""
    from metricdp.perturb import formats
    from metricdp.perturb.formats.ipc import IpcSink, IpcSource

    class ToySink(IpcSink):
        suffixes = (ending,)

    monkeypatch.setitem(formats.FORMATS, ToySink, IpcSource)
