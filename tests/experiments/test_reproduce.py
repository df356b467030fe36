"""The paper's experiments: honest figures, a sweep that survives kill -9, and a report that needs nothing else."""

import csv
import io
import itertools
import json
import math
import random
import re
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import metricdp as mdp
from experiments_tools import SILENT, all_ended, children_of, command, some_jobs, wait_until
from metricdp.experiments import estimates
from metricdp.experiments.engine.sweep import HERE, sweep
from metricdp.experiments.paper import reported, tables
from metricdp.experiments.paper.document import Cell, Heading, Picture, Table, Text, to_html, to_markdown
from metricdp.experiments.paper.evidence import Evidence
from metricdp.experiments.paper.job import PaperJob
from metricdp.experiments.paper.measuring import measure
from metricdp.experiments.paper.places import survey
from metricdp.experiments.paper.plan import COMPARED, Settings, plan, quick
from metricdp.experiments.paper.ratios import BIN_EDGES, compare_all_pairs
from metricdp.experiments.paper.report import checks, write_report
from metricdp.experiments.paper.reproducing import guesses, reproduce
from oracles import all_pair_ratios

REPORTED = Path(__file__).parents[3] / "shared" / "paper" / "reported_results.csv"

pytestmark = pytest.mark.skipif("helsinki" not in mdp.cities.available(), reason="needs the extra `cities`")

# Methods whose figures no clock decides, and few enough for a sweep to be killed and continued several times.
STEADY = ["--methods", "em,lp,aipo,spline", "--epsilons", "8", "--repeats", "2"]
SWEEP = ["utility", "budget", "granularity", "--quick", *STEADY, "--json"]


def finish(*arguments, **options):
    answer = subprocess.run(
        command("reproduce", *arguments), capture_output=True, text=True, check=False, timeout=600, **options
    )
    assert answer.returncode == 0, answer.stderr
    return answer


def results_in(folder):
    return len(list((folder / "results").glob("*.json")))


def tables_in(folder):
    """The tables that no clock decides, byte by byte."""
    found = {path.name: path.read_bytes() for path in sorted((folder / "tables").glob("*.csv"))}
    assert found
    return found


@pytest.fixture(scope="module")
def helsinki():
    return survey(["helsinki"])


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """`metricdp reproduce --quick`, whole, as a user runs it."""
    folder = tmp_path_factory.mktemp("quick")
    started = time.monotonic()
    answer = finish("--quick", "--out", folder / "out", "--json", cwd=folder)
    return folder / "out", json.loads(answer.stdout), answer.stderr, time.monotonic() - started


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """The sweep of the tests below, run in one go."""
    folder = tmp_path_factory.mktemp("steady") / "out"
    finish(*SWEEP, "--out", folder)
    return folder


def test_quick_shows_every_experiment_within_three_minutes(report):
    folder, answer, errors, seconds = report
    assert seconds < 180
    assert answer["private_as_claimed"] is True
    assert answer["failed_jobs"] == 0
    assert {row["method"] for row in answer["losses"]} == {*COMPARED, "tight bound", "paper bound"}
    assert re.search(r"\d+ jobs; about \d+ (s|min) to go", errors)
    text = (folder / "report.md").read_text()
    for words in ("Table 2", "Table 3", "Table 4", "Table 7", "Table 8", "Table 9", "Table 10", "Figures 8 to 10"):
        assert words in text
    for words in ("Figures 11 to 13", "Figure 14", "Where we differ and why", "Figures that a clock decided"):
        assert words in text
    for file in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (folder / file).read_bytes()[:4] == b"\x89PNG"


def test_the_page_is_whole_and_asks_nothing_of_the_network(report):
    page = (report[0] / "report.html").read_text()
    pictures = re.findall(r'<img src="([^"]{30})', page)
    assert len(pictures) == 6
    assert all(start.startswith("data:image/png;base64") for start in pictures)
    assert not re.search(r"<(link|script|iframe)|(src|href)=\"(?!data:)|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page


def on_the_plane(problem):
    """Return a city's problem without its projection: the paper's ε is per kilometre of the map."""
    return mdp.Problem(problem.records, problem.outputs, problem.loss, problem.prior, problem.p, problem.bounds)


def test_figures_are_those_of_the_library(report):
    folder, *_ = report
    frame = pd.read_csv(folder / "tables" / "utility_l2.csv").set_index(["method", "epsilon"])
    problem = on_the_plane(mdp.cities.load("helsinki").problem(outputs=10, tasks=10, seed=0))
    for method, options in (("em", {}), ("laplace-remap", {}), ("aipo-r", {"cells": 6}), ("lp", {"cells": 5})):
        fitted = mdp.fit(problem, 4.0, method, certify=False, **options)
        assert frame.loc[(method, 4.0), "loss"] == pytest.approx(fitted.expected_loss(problem), rel=1e-6)
    assert frame.loc[("tight bound", 16.0), "loss"] == pytest.approx(
        mdp.lower_bound(problem, 16.0, clusters=60), rel=1e-6
    )
    l1 = pd.read_csv(folder / "tables" / "utility_l1.csv").set_index(["method", "epsilon"])
    other = on_the_plane(mdp.cities.load("helsinki").problem(outputs=10, tasks=10, seed=0, p=1))
    assert l1.loc[("em", 4.0), "loss"] == pytest.approx(mdp.fit(other, 4.0, "em").expected_loss(other), rel=1e-6)


def test_no_private_method_is_below_the_bound_and_none_breaks_mdp(report):
    folder, *_ = report
    for norm in ("l2", "l1"):
        losses = pd.concat(
            pd.read_csv(folder / "tables" / part / f"utility_{norm}.csv") for part in (".", "clock")
        ).pivot_table(index="epsilon", columns="method", values="loss")
        seen = pd.concat(pd.read_csv(folder / "tables" / part / f"violation_{norm}.csv") for part in (".", "clock"))
        private = {"em", "laplace", "tem", "em-remap", "aipo", "laplace-remap", "spline", "auto"}
        for method in private:
            assert (losses[method] >= losses["tight bound"]).all()
        rows = seen[seen["method"].isin(private)]
        assert set(rows["method"]) == private
        assert rows["certified"].all()
        assert (rows["violation_percent"] == 0).all()
        assert (rows["worst_ratio"] <= 1).all()
        relaxed = seen[seen["method"].isin(["lp", "copt", "aipo-r"])]
        assert not relaxed["certified"].any()
        assert (relaxed["worst_ratio"] > 1).all()
        assert (relaxed["slack_violation_percent"] <= relaxed["violation_percent"]).all()


def test_statements_about_differences_are_backed_by_runs(report):
    folder, *_ = report
    wrong = pd.read_csv(folder / "tables" / "mismatched_outputs.csv")
    em = wrong[wrong["method"] == "em"]
    assert (abs(em["mismatched_loss"] / em["uniform_loss"] - 1) < 0.15).all()
    assert (em["loss"] < 0.85 * em["mismatched_loss"]).all()
    variants = pd.read_csv(folder / "tables" / "variants.csv").set_index("purpose")["loss"]
    assert variants["whole budget"] < variants["half budget"]
    text = (folder / "report.md").read_text()
    assert f"| Helsinki, ε/√2 per axis | {variants['whole budget']:.3f} |" in text
    assert "With mismatched outputs em" in text


def test_a_finished_run_is_not_run_again(report):
    folder, *_ = report
    before = {path: path.stat().st_mtime_ns for path in (folder / "results").glob("*.json")}
    expected = tables_in(folder)
    by_clock = (folder / "tables" / "clock" / "utility_l2.csv").read_bytes()
    answer = finish("--quick", "--out", folder)
    assert f"{len(before)} of them done before" in answer.stderr
    assert {path: path.stat().st_mtime_ns for path in (folder / "results").glob("*.json")} == before
    assert tables_in(folder) == expected
    assert (folder / "tables" / "clock" / "utility_l2.csv").read_bytes() == by_clock


def test_kill_at_three_random_moments_and_continue(steady, tmp_path):
    folder = tmp_path / "out"
    total = results_in(steady)
    moments = sorted(random.Random().sample(range(1, total - 1), 3))
    print("killed once these many results were there:", moments)
    orphans = []
    for moment in moments:
        with subprocess.Popen(command("reproduce", *SWEEP, "--out", folder), **SILENT) as process:
            wait_until(lambda: results_in(folder) >= moment, process)  # noqa: B023 - called at once
            time.sleep(random.Random().uniform(0, 0.2))
            orphans += children_of(process.pid)
            process.kill()  # signal 9
            process.wait()
    assert results_in(folder) >= moments[0]
    kept = {path: path.stat().st_mtime_ns for path in (folder / "results").glob("*.json")}
    finish(*SWEEP, "--out", folder)
    assert results_in(folder) == total
    assert not list((folder / "results").glob(".*.tmp"))
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())
    assert tables_in(folder) == tables_in(steady)
    assert all_ended(orphans)  # workers do not outlive a parent that was killed


def test_a_dask_cluster_completes_though_a_worker_is_killed(steady, tmp_path):
    pytest.importorskip("distributed")
    folder, card = tmp_path / "out", tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", card, "--no-nanny"]
    started = [
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            card,
        ],
        *[[*dask, "--nthreads", "1", "--no-dashboard", "--name", str(number)] for number in range(2)],
    ]
    processes = []
    try:
        for number, line in enumerate(started):
            processes.append(subprocess.Popen(list(map(str, line)), **SILENT, cwd=tmp_path))
            if number == 0:
                wait_until(lambda: card.exists() and card.stat().st_size > 0, processes[0])
        address = json.loads(card.read_text())["address"].removeprefix("tcp://")
        total = results_in(steady)
        with subprocess.Popen(
            command("reproduce", *SWEEP, "--out", folder, "--executor", f"dask://{address}"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as client:
            processes.append(client)
            wait_until(lambda: results_in(folder) >= total // 4, client)
            processes[1].kill()
            assert results_in(folder) < total
            _, errors = client.communicate(timeout=300)
            assert client.returncode == 0, errors
        assert processes[2].poll() is None  # the other worker did the rest
        assert tables_in(folder) == tables_in(steady)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_failures_are_told_and_tables_leave_them_out(helsinki):
    good, bad = some_jobs(helsinki)
    bad = replace(bad, options=(("beta", 3.0),))
    found = sweep([good, bad], measure, guesses=guesses(helsinki), executor=HERE)
    assert "strictly between 0 and 1" in found[bad.key]["error"]
    frame = tables.gather([good, bad], found)
    assert frame["error"].ne("").tolist() == [False, True]
    assert set(tables.losses(frame, 2)["method"]) == {"em"}


def test_keys_name_everything_that_matters_and_nothing_else(helsinki):
    (job,) = some_jobs(helsinki, methods=("em",))
    assert replace(job, purpose="other", place="x", city="/elsewhere").key == job.key
    changes = [
        {"epsilon": 5.0}, {"p": 1.0}, {"seed": 3}, {"method": "tem"}, {"network": "0"}, {"outputs": 11}, {"tasks": 3},
        {"mismatched": True}, {"sample": 7}, {"pairs": 7}, {"options": (("time_limit", 1.0),)}, {"kind": "bound"},
    ]  # fmt: skip
    keys = {replace(job, **change).key for change in changes}
    assert len(keys) == len(changes)
    assert job.key not in keys
    assert len(job.content()) == len(job.__dataclass_fields__) - 3
    with pytest.raises(AttributeError):
        job.seed = 1


def test_a_job_refuses_another_network_than_the_planned_one(helsinki):
    (job,) = some_jobs(helsinki, methods=("em",))
    assert "must be the network that the run was planned for" in measure(replace(job, network="0"))["error"]


def test_plans_of_the_paper(helsinki):
    rome = replace(helsinki[0], name="rome", width_km=47.4, height_km=49.1, nodes=43_160)
    nyc = replace(helsinki[0], name="nyc", network="2", edges=0)
    settings = Settings(epsilons=tuple(round(0.2 * n, 12) for n in range(1, 9)))
    everything = plan(("utility", "violation", "time", "ppr"), [rome, nyc], settings)
    fits = [job for job in everything if job.purpose == "main" and job.kind == "fit"]
    assert len({job.key for job in fits}) == len(fits) == 2 * 8 * len(COMPARED)
    assert {job.tasks for job in fits if job.place == "nyc"} == {1}
    assert {job.option("cells") for job in fits if job.method == "aipo" and job.place == "rome"} == {(15, 16)}
    assert {job.option("cells") for job in fits if job.method == "lp"} == {11}
    code = [job for job in everything if job.purpose == "cells of the code" and job.place == "rome"]
    assert [job.option("cells") for job in code] == [(10, 11)]
    # The part of the plan that must be done in 90 minutes on two cores, by our own guesses.
    hours = sum(estimates.seconds(job, estimates.Size(43_160, 20)) for job in everything if job.place == "rome") / 3600
    assert 0.2 < hours < 1
    assert all(0 < estimates.gigabytes(job, estimates.Size(128_203, 20)) < 4 for job in everything)


def test_all_pairs_against_loops():
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(4, 0.4), size=30)
    rows[3] = [1.0, 0.0, 0.0, 0.0]
    rows[4] = [0.5, 0.5, 0.0, 0.0]
    points = rng.random((30, 2)) * 3
    points[7] = points[8]
    for p in (1.0, 2.0):
        found = compare_all_pairs(rows, points, 0.7, p)
        ratios, violations, slack = all_pair_ratios(rows, points, 0.7, p, slack=0.01)
        assert (found.compared, found.violations, found.slack_violations) == (len(ratios), violations, slack)
        counts = [
            sum(low <= r < high for r in ratios)
            for low, high in zip(BIN_EDGES, [*BIN_EDGES[1:], math.inf], strict=True)
        ]
        counts[-1] = sum(r >= BIN_EDGES[-1] for r in ratios)
        assert found.counts == counts
        assert found.largest == math.inf


def made_up(helsinki, seeds=4):
    """Jobs on a city that the paper has, with results drawn at random."""
    rome = replace(helsinki[0], name="rome")
    settings = replace(
        quick(Settings(epsilons=(0.2, 0.4), repeats=seeds, methods=("em", "aipo", "lp"))), curve=3, sample=10
    )
    jobs = plan(("utility", "budget"), [rome], settings)
    rng = random.Random(1)
    results = {}
    for job in jobs:
        counts = [rng.randrange(5) for _ in BIN_EDGES]
        sample = {
            "compared": 200,
            "violations": rng.randrange(9),
            "slack_violations": 1,
            "largest": 0.5,
            "counts": counts,
        }
        seconds = {"fit": rng.random(), "all": 2.0}
        results[job.key] = {
            "loss": rng.random(), "certified": rng.random() > 0.1, "sample": sample, "seconds": seconds, "floor": 0.1,
            "uniform_loss": rng.random(), "by_clock": job.method == "lp" and job.seed == 2 and job.epsilon == 0.4,
        }  # fmt: skip
    return jobs, results


def spread(values):
    return statistics.fmean(values), 1.96 * statistics.stdev(values)


def test_tables_against_plain_arithmetic(helsinki):
    jobs, results = made_up(helsinki)
    frame = tables.gather(jobs, results)
    printed = {}
    for row in csv.DictReader(line for line in io.StringIO(paper_file().read_text()) if not line.startswith("#")):
        name = row["table"], row["city"], row["method"], float(row["epsilon_per_km"])
        printed[name] = float(row["mean"]), float(row["half_width"])
    main = [job for job in jobs if job.purpose == "main"]
    losses = tables.losses(frame, 2).set_index(["method", "epsilon"])
    violations = tables.violations(frame, 2).set_index(["method", "epsilon"])
    seconds = tables.seconds(frame, 2).set_index(["method", "epsilon"])
    for method, epsilon in itertools.product(("em", "aipo", "lp"), (0.2, 0.4)):
        mine = [
            results[job.key] for job in main if job.kind == "fit" and (job.method, job.epsilon) == (method, epsilon)
        ]
        assert len(mine) == 4
        name = ("rome", reported.NAMES[method], epsilon)
        row = losses.loc[(method, epsilon)]
        assert (row["loss"], row["loss_half_width"]) == pytest.approx(spread([r["loss"] for r in mine]))
        assert (row["paper_mean"], row["paper_half_width"]) == printed["utility_loss_km_l2", *name]
        assert row["difference_percent"] == pytest.approx(100 * (row["loss"] - row["paper_mean"]) / row["paper_mean"])
        assert row["by_clock"] == (method == "lp" and epsilon == 0.4)
        row = violations.loc[(method, epsilon)]
        percents = [100 * r["sample"]["violations"] / 200 for r in mine]
        assert (row["violation_percent"], row["violation_percent_half_width"]) == pytest.approx(spread(percents))
        assert row["certified"] == all(r["certified"] for r in mine)
        assert row["paper_mean"] == printed["violation_percent_l2", *name][0]
        row = seconds.loc[(method, epsilon)]
        assert row["seconds"] == pytest.approx(statistics.fmean(r["seconds"]["fit"] for r in mine))
    curve = [job for job in jobs if job.purpose == "curve"]
    ablation = tables.ablation(frame).set_index(["method", "epsilon"])
    for epsilon in (0.2, 0.4):
        of_seed = [[job for job in curve if (job.seed, job.epsilon) == (seed, epsilon)] for seed in range(4)]
        best = [min(results[job.key]["loss"] for job in group) for group in of_seed]
        equal = [results[job.key]["loss"] for group in of_seed for job in group if job.option("share") == 0.5]
        for method, values in (("aipo", best), ("aipo-e", equal)):
            row = ablation.loc[(method, epsilon)]
            assert (row["loss"], row["loss_half_width"]) == pytest.approx(spread(values))
            assert (
                row["paper_mean"] == printed["ablation_utility_loss_km_l2", "rome", reported.NAMES[method], epsilon][0]
            )
    ranked = tables.order(tables.losses(frame, 2))
    for epsilon in (0.2, 0.4):
        names = sorted(("em", "aipo", "lp"), key=lambda method: losses.loc[(method, epsilon), "loss"])
        assert ranked[ranked["epsilon"] == epsilon]["method"].tolist() == names


def test_one_repeat_has_no_spread(helsinki):
    jobs, results = made_up(helsinki, seeds=1)
    table = tables.losses(tables.gather(jobs, results), 2)
    assert table["loss_half_width"].isna().all()
    assert (table["repeats"] == 1).all()


def test_histograms_add_up_repeats(helsinki):
    jobs, results = made_up(helsinki)
    table = tables.histograms(tables.gather(jobs, results), 2, 0.2)
    mine = [
        results[job.key]["sample"]["counts"]
        for job in jobs
        if (job.purpose, job.kind, job.method, job.epsilon) == ("main", "fit", "em", 0.2)
    ]
    assert table[table["method"] == "em"]["count"].tolist() == [sum(column) for column in zip(*mine, strict=True)]


def test_a_report_puts_the_papers_figures_beside_ours(helsinki, tmp_path):
    rome = replace(helsinki[0], name="rome", nodes=43_160)
    settings = replace(quick(Settings(epsilons=(0.2, 0.4), repeats=2, methods=COMPARED)), sample=10)
    jobs = plan(("utility", "violation", "time", "l1"), [rome], settings)
    rng = random.Random(2)
    results = {}
    for job in jobs:
        sample = {"compared": 9, "violations": 0, "slack_violations": 0, "largest": 0.5, "counts": [1] * len(BIN_EDGES)}
        results[job.key] = {
            "loss": rng.uniform(3, 6), "certified": True, "sample": sample, "seconds": {"fit": 1.0, "all": 2.0},
            "floor": 2.5, "uniform_loss": 8.8, "by_clock": job.method == "auto",
        }  # fmt: skip
    broken = next(job for job in jobs if (job.method, job.epsilon, job.p, job.purpose) == ("em", 0.4, 2, "main"))
    results[broken.key]["sample"] = {**sample, "violations": 1, "largest": 1.5}
    evidence = Evidence(("utility", "violation", "time", "l1"), (rome,), settings, tables.gather(jobs, results))
    files = write_report(evidence, tmp_path / "new", workers=2, seconds=100.0)
    text = Path(files["markdown"]).read_text()
    row = evidence.losses.set_index(["method", "epsilon"]).loc[("aipo", 0.2)]
    assert f"{row['loss']:.3f} ± {row['loss_half_width']:.3f} (5.68 ± 0.34)" in text
    assert "(147.4 ± 18.2)" in text
    assert checks(evidence).broken == ("rome em ε = 0.4, p = 2",)
    assert "NOT private, or not proved: rome em ε = 0.4, p = 2." in text
    assert "| Rome | 3.18 km |" in text
    assert "the paper's Table 1 prints" not in text  # Rome's nodes agree
    assert (tmp_path / "new" / "figures" / "loss_l2_rome.png").stat().st_size > 10_000


def paper_file():
    return Path(reported.__file__).with_name("paper_results.csv")


def test_the_papers_figures():
    frame = reported.table("violation_percent_l2")
    private = frame[frame["method"].isin(reported.PRIVATE)]
    assert len(private) == 3 * 8 * len(reported.PRIVATE)
    assert (private["paper_mean"] == 0).all()
    assert (frame[frame["method"] == "lp"]["paper_mean"] > 0).all()
    assert "Qiu" in paper_file().read_text().splitlines()[0]
    assert not reported.table("utility_loss_km_l2").isna().any(axis=None)


@pytest.mark.skipif(not REPORTED.exists(), reason="needs the paper's figures beside the project")
def test_the_data_file_is_the_papers():
    ours = [line for line in paper_file().read_text().splitlines() if not line.startswith("#")]
    assert ours == REPORTED.read_text().splitlines()


def test_documents():
    picture = Picture("a < b", "figures/a.png", b"png")
    blocks = [Heading("H", 1), Text("x & y"), Table("c", ["", "ε"], [["r|s", Cell("1", "2", alarm=True)]]), picture]
    page = to_html("t", blocks)
    assert "<p>x &amp; y</p>" in page
    assert '<td class="alarm">1<small>2</small></td>' in page
    assert 'src="data:image/png;base64,cG5n"' in page
    text = to_markdown(blocks)
    assert "| r\\|s | **1** (2) |" in text
    assert "![a < b](figures/a.png)" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"experiments": ["magic"]}, "`experiments` must be one of"),
        ({"experiments": []}, "`experiments` must be non-empty"),
        ({"methods": ["magic"]}, "`methods` must be one of"),
        ({"epsilons": [0, 1]}, "`epsilons` must be a positive finite number"),
        ({"epsilons": [1, 1]}, "`epsilons` must be all different"),
        ({"epsilons": []}, "`epsilons` must be non-empty"),
        ({"repeats": 0}, "`repeats` must be a whole number of at least 1"),
        ({"workers": 0}, "`workers` must be a whole number of at least 1"),
        ({"executor": "dask://nowhere"}, "`executor` must be 'local' or 'dask://HOST:PORT'"),
        ({"cities": ["helsinki", "Helsinki"]}, "`cities` must be of different names"),
        ({"cities": []}, "`cities` must be non-empty"),
        ({"auto_seconds": -1}, "`auto_seconds` must be a positive finite number"),
    ],
)
def test_bad_arguments_leave_nothing_behind(tmp_path, change, words):
    with pytest.raises(mdp.InvalidInputError, match=re.escape(words)):
        reproduce(**({"out": tmp_path / "out", "quick": True} | change))
    assert not (tmp_path / "out").exists()


def test_missing_cities_are_one_line_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.delenv("METRICDP_DATA", raising=False)
    answer = subprocess.run(
        command("reproduce", "--out", tmp_path / "out"), capture_output=True, text=True, check=False, timeout=120
    )
    assert answer.returncode == 2
    assert "City 'rome' could not be loaded" in answer.stderr
    assert "METRICDP_DATA" in answer.stderr
    assert "--quick" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "out").exists()


def test_jobs_are_plain_data(helsinki):
    for job in some_jobs(helsinki, methods=COMPARED, experiments=("utility", "budget", "granularity", "l1")):
        assert isinstance(job, PaperJob)
        assert isinstance(hash(job), int)
        json.dumps(job.content())
