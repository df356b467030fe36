"""Files at URLs: read and written whole through fsspec, and nothing of a URL that may be a credential is told."""

import functools
import http.server
import json
import logging
import sys
import threading
import traceback

import pandas as pd
import pyarrow.parquet
import pytest

import cli_tools
import metricdp as mdp
from metricdp.perturb import Options, limits, perturb_file, perturb_folder
from metricdp.perturb.remote import located, shown
from perturb_tools import CENTRE, city, nearest, points

fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")

from fsspec.registry import known_implementations  # noqa: E402 - only where it is installed

ROWS = 300


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    for name, size in {"PART_ROWS": 100, "BATCH_ROWS": 64, "READ_BYTES": 1000, "LONGEST_LINE": 5000}.items():
        monkeypatch.setattr(limits, name, size)


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def table():
    lonlat = CENTRE.to_lonlat(points(ROWS))
    return pd.DataFrame({"id": [f"{n:04}" for n in range(ROWS)], "lon": lonlat[:, 0], "lat": lonlat[:, 1]})


def content(path, suffix):
    if suffix == "parquet":
        table().to_parquet(path / "x.parquet", index=False)
    elif suffix == "jsonl":
        table().to_json(path / "x.jsonl", orient="records", lines=True, double_precision=15)
    elif suffix == "geojson":
        features = [
            {"properties": {"id": row.id}, "geometry": {"type": "Point", "coordinates": [row.lon, row.lat]}}
            for row in table().itertuples()
        ]
        (path / "x.geojson").write_text(json.dumps({"features": features}))
    else:
        table().to_csv(path / f"x.{suffix}", index=False)
    return (path / f"x.{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.xz", "jsonl", "geojson", "parquet"])
def test_from_a_url_to_a_url(tmp_path, memory, suffix):
    memory.pipe(f"/data/in.{suffix}", content(tmp_path, suffix))
    summary = perturb_file(city(), f"memory://data/in.{suffix}", "memory://data/out.csv", Options(copy=("id",)))
    assert summary.counts.rows_out == ROWS
    with memory.open("/data/out.csv") as file:
        answer = pd.read_csv(file, dtype={"id": str})
    assert answer["output_id"].tolist() == nearest(points(ROWS)).tolist()
    assert answer["id"].tolist() == table()["id"].tolist()
    perturb_file(city(), f"memory://data/in.{suffix}", tmp_path / "out.parquet", resume=True)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["output_id"].to_pylist() == answer["output_id"].tolist()


def test_outputs_at_urls_are_whole_or_not_there(tmp_path, memory):
    memory.pipe("/in.csv", content(tmp_path, "csv") + b"24.94,north\n")
    with pytest.raises(mdp.InvalidInputError, match="row 301"):
        perturb_file(city(), "memory://in.csv", "memory://out.parquet")
    assert memory.ls("/", detail=False) == ["/in.csv"]
    memory.pipe("/in.csv", content(tmp_path, "csv"))
    perturb_file(city(), "memory://in.csv", "memory://out.parquet")
    before = memory.cat("/out.parquet")
    with pytest.raises(mdp.InvalidInputError, match=r"memory://…/out\.parquet exists; replace it with `overwrite`"):
        perturb_file(city(), "memory://in.csv", "memory://out.parquet")
    with pytest.raises(mdp.InvalidInputError, match=r"`resume` must be used with files, .* nor to write to a URL"):
        perturb_file(city(), "memory://in.csv", "memory://out.parquet", resume=True)
    with pytest.raises(mdp.InvalidInputError, match="`target` must be another file than `source`"):
        perturb_file(city(), "memory://in.csv", "memory://in.csv", overwrite=True)
    assert memory.cat("/out.parquet") == before
    perturb_file(city(), "memory://in.csv", "memory://out.parquet", overwrite=True)
    with memory.open("/out.parquet") as file:
        assert len(pyarrow.parquet.read_table(file)) == ROWS


def test_resuming_notices_that_the_file_at_a_url_has_changed(tmp_path, memory):
    class Cut(RuntimeError):
        pass

    def cut(rows, _):
        if rows >= 150:
            raise Cut

    memory.pipe("/in.csv", content(tmp_path, "csv"))
    with pytest.raises(Cut):
        perturb_file(city(), "memory://in.csv", tmp_path / "out.csv", resume=True, progress=cut)
    memory.pipe("/in.csv", content(tmp_path, "csv") + b"9,24.94,60.17\n")
    with pytest.raises(mdp.InvalidInputError, match="differs in its input"):
        perturb_file(city(), "memory://in.csv", tmp_path / "out.csv", resume=True)
    memory.pipe("/in.csv", content(tmp_path, "csv"))
    assert perturb_file(city(), "memory://in.csv", tmp_path / "out.csv", resume=True).resumed >= 150


def test_file_urls_are_paths(tmp_path):
    content(tmp_path, "csv")
    url = (tmp_path / "x.csv").as_uri()
    assert located(url) == tmp_path / "x.csv"
    perturb_file(city(), url, (tmp_path / "out 1.csv").as_uri(), resume=True)
    assert len(pd.read_csv(tmp_path / "out 1.csv")) == ROWS
    with pytest.raises(mdp.InvalidInputError, match="has three slashes"):
        perturb_file(city(), "file://x.csv", tmp_path / "out.csv")


# -- what is said

SECRETS = ("s3cr3t", "t0k3n", "4nn")
URLS = [
    "{}://4nn:s3cr3t@example.invalid/in.csv?sig=t0k3n",
    "{}://4nn:s3cr3t/t0k3n@example.invalid/in.csv",
    "{}://4nn:s3cr3t?t0k3n@example.invalid/in.csv#t0k3n",
    "{}://example.invalid/t0k3n/in.csv?sig=s3cr3t@t0k3n/4nn",
]


@pytest.mark.parametrize("url", URLS)
def test_urls_are_shown_without_credentials(url):
    assert not any(secret in shown(url.format("https")) for secret in SECRETS)
    assert shown(url.format("s3")).startswith("s3://…")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("scheme", ["memory", "http", "s3", "nosuchscheme", "simplecache"])
def test_errors_tell_no_credentials(tmp_path, memory, url, scheme, caplog):
    caplog.set_level(logging.WARNING)
    city().save(tmp_path / "city.mdp")
    content(tmp_path, "csv")
    for source, target in (
        (url.format(scheme), "out.csv"),
        ("x.csv", url.format(scheme)),
        (f"zip://x::{url}", "out.csv"),
    ):
        try:
            perturb_file(
                city(),
                source if "://" in source else tmp_path / source,
                target if "://" in target else tmp_path / target,
            )
        except (mdp.InvalidInputError, OSError) as error:
            said = "".join(traceback.format_exception(error))
        else:
            assert scheme == "memory"
            continue
        # The lines of the traceback are those of this file, where the URLs are not written out.
        assert not any(secret in said for secret in SECRETS), said
        answer = cli_tools.call("perturb", "city.mdp", source, target, cwd=tmp_path)
        assert answer.returncode == 2
        assert not any(secret in answer.stderr + answer.stdout for secret in SECRETS)
    assert not any(secret in caplog.text for secret in SECRETS)


def test_the_summary_and_the_jobs_folder_tell_no_credentials(tmp_path, memory):
    city().save(tmp_path / "city.mdp")
    content(tmp_path, "csv")
    answer = cli_tools.call("perturb", "city.mdp", "x.csv", "memory://s3cr3t/out.csv?t0k3n", "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["out"] == "memory://…/out.csv"
    memory.pipe("/s3cr3t/in.csv", content(tmp_path, "csv"))

    def interrupt(rows, _):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perturb_file(city(), "memory://s3cr3t/in.csv", tmp_path / "out.csv", progress=interrupt)
    left = b"".join(path.read_bytes() for path in (tmp_path / ".out.csv.parts").iterdir())
    assert b"memory://" in left
    assert b"s3cr3t" not in left


def test_what_is_not_installed_or_not_supported_is_said(tmp_path, monkeypatch):
    content(tmp_path, "csv")
    with pytest.raises(mdp.InvalidInputError, match="`source` must be a folder on the disk"):
        perturb_folder(city(), "s3://bucket/in", tmp_path / "out")
    with pytest.raises(mdp.InvalidInputError, match="Arrow files are mapped into memory; copy it to the disk"):
        perturb_file(city(), "memory://in.arrow", tmp_path / "out.csv")
    with pytest.raises(mdp.InvalidInputError, match="chains file systems"):
        perturb_file(city(), "zip://x.zip::memory://in.csv", tmp_path / "out.csv")
    with pytest.raises(FileNotFoundError, match=r"memory://…/none\.csv"):
        perturb_file(city(), "memory://none.csv", tmp_path / "out.csv")
    monkeypatch.setitem(known_implementations, "toy", {"class": "toyfs.Toy", "err": "Install toyfs"})
    with pytest.raises(mdp.InvalidInputError, match=r"toy:// needs a package that is not installed.*Install toyfs"):
        perturb_file(city(), "toy://in.csv", tmp_path / "out.csv")
    for module in ("fsspec", "fsspec.core", "fsspec.registry"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(mdp.InvalidInputError, match=r"pip install 'metricdp\[remote\]'"):
        perturb_file(city(), "memory://in.csv", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_https_from_a_server_that_only_gives_whole_files(tmp_path):
    pytest.importorskip("aiohttp")
    content(tmp_path, "csv.gz")
    content(tmp_path, "jsonl")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for name in ("x.csv.gz", "x.jsonl"):
                url = f"http://127.0.0.1:{server.server_port}/{name}?token=t0k3n"
                perturb_file(city(), url, tmp_path / "out.csv", overwrite=True)
                assert pd.read_csv(tmp_path / "out.csv")["output_id"].tolist() == nearest(points(ROWS)).tolist()
            with pytest.raises(FileNotFoundError, match=r"http://…/none\.csv"):
                perturb_file(city(), url.replace("x.jsonl", "none.csv"), tmp_path / "out.csv", overwrite=True)
            with pytest.raises(mdp.InvalidInputError, match="can be read, but not written"):
                perturb_file(city(), tmp_path / "x.jsonl", url.replace("x.jsonl", "new.csv"))
        finally:
            server.shutdown()
            thread.join()
