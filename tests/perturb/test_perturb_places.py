"""Reports carry the ids and names that outputs were given, in every format and after a cut."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import metricdp as mdp
from metricdp.perturb import Options, limits, perturb_batch, perturb_file
from metricdp.perturb.parts import Parts
from perturb_tools import CENTRE, city, nearest, plane, points

ROWS = 300
NAMES = ('Kamppi, "the" centre', "<img src=x onerror=alert(1)>", "Töölö", "=1+1", "Töölö")
IDS = {
    "text": ("node/1", "007", "null", "ü,\"'", "a b"),
    "integers": (2**63 - 1, -(2**63), 2**53 + 1, 0, -1),
}


def named(ids, names=NAMES):
    return dataclasses.replace(city(), output_ids=ids, output_names=names)


def lonlat_table():
    """Points, every tenth of which is missing."""
    lonlat = CENTRE.to_lonlat(points(ROWS))
    table = pd.DataFrame({"lon": lonlat[:, 0], "lat": lonlat[:, 1]})
    table.loc[::10, "lon"] = None
    return table


def expected(labels):
    which = nearest(points(ROWS))
    return [None if row % 10 == 0 else labels[which[row]] for row in range(ROWS)]


def columns_of(path):
    """Read ids and names with other readers than ours."""
    kind = path.suffix
    if kind in (".csv", ".tsv"):
        separator = "," if kind == ".csv" else "\t"
        frame = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, na_values=[""])
        return {name: [None if pd.isna(one) else one for one in frame[name]] for name in frame}
    if kind in (".geojson", ".jsonl"):
        text = path.read_text()
        features = json.loads(text)["features"] if kind == ".geojson" else map(json.loads, text.splitlines())
        properties = [feature.get("properties", feature) for feature in features]
        return {name: [one[name] for one in properties] for name in properties[0]}
    table = pyarrow.parquet.read_table(path) if "parquet" in kind else pa.ipc.open_file(path).read_all()
    return table.to_pydict()


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "geoparquet", "geojson", "arrow"])
def test_every_format_holds_ids_and_names(tmp_path, suffix, kind):
    ids = IDS[kind]
    lonlat_table().to_parquet(tmp_path / "in.parquet", index=False)
    perturb_file(named(ids), tmp_path / "in.parquet", tmp_path / f"out.{suffix}")
    found = columns_of(tmp_path / f"out.{suffix}")
    assert list(found)[:2] == ["output_id", "output_name"]
    wanted = expected(ids)
    assert found["output_id"] == (
        [one if one is None else str(one) for one in wanted] if suffix in ("csv", "tsv") else wanted
    )
    assert found["output_name"] == expected(NAMES)


def test_columns_have_the_types_of_ids_and_are_left_out_without_names():
    batch = pa.RecordBatch.from_pandas(lonlat_table())
    types = {
        pa.string(): named(IDS["text"], None),
        pa.int64(): named(IDS["integers"], None),
        pa.int32(): city(),
    }
    for wanted, mechanism in types.items():
        answer = perturb_batch(mechanism, batch)
        assert answer.schema.names == ["output_id", "lon", "lat"]
        assert answer.schema.field("output_id").type == wanted
    only_names = perturb_batch(named(None), batch)
    assert only_names.schema.names == ["output_id", "output_name", "lon", "lat"]
    assert only_names.column("output_id").to_pylist() == expected(range(5))
    assert only_names.column("output_name").to_pylist() == expected(NAMES)


def test_no_rows_have_the_same_columns():
    empty = pa.RecordBatch.from_pandas(lonlat_table()[:0])
    answer = perturb_batch(named(IDS["text"]), empty)
    assert answer.schema.names == ["output_id", "output_name", "lon", "lat"]
    assert answer.schema.field("output_id").type == pa.string()


def test_a_copied_column_may_not_be_called_like_one_of_ours():
    batch = pa.RecordBatch.from_pandas(lonlat_table().assign(output_name="mine"))
    assert perturb_batch(city(), batch, copy=["output_name"]).column("output_name").to_pylist() == ["mine"] * ROWS
    with pytest.raises(mdp.InvalidInputError, match="output_name"):
        perturb_batch(named(IDS["text"]), batch, copy=["output_name"])


class CutError(RuntimeError):
    """Stands for whatever ends a job before its time."""


def cut_after(rows):
    def progress(done, _):
        if done >= rows:
            raise CutError

    return progress


def test_parts_keep_indices_and_a_resumed_job_shows_ids(tmp_path, monkeypatch):
    for name, size in {"PART_ROWS": 50, "BATCH_ROWS": 25}.items():
        monkeypatch.setattr(limits, name, size)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    lonlat_table().to_parquet(source, index=False)
    with pytest.raises(CutError):
        perturb_file(named(IDS["text"]), source, target, resume=True, progress=cut_after(150))
    (part, *_) = sorted(Parts(target).folder.glob("part-*"))
    kept = pa.ipc.open_file(part).read_all()
    assert kept.schema.names == ["output_id"]
    assert kept["output_id"].to_pylist() == expected(range(5))[: len(kept)]
    # Parts of a mechanism that calls its outputs otherwise are another mechanism's.
    with pytest.raises(mdp.InvalidInputError, match="differs in its mechanism"):
        perturb_file(named(IDS["text"][::-1]), source, target, resume=True)
    assert perturb_file(named(IDS["text"]), source, target, resume=True).resumed >= 150
    found = columns_of(target)
    assert found["output_id"] == expected(IDS["text"])
    assert found["output_name"] == expected(NAMES)


def test_refusals_of_a_ledger_have_no_id(tmp_path):
    mechanism = dataclasses.replace(plane(), output_ids=IDS["text"], output_names=NAMES)
    pyarrow.parquet.write_table(
        pa.table({"who": ["a", "a", "b"], "x": [0.5, 3.5, 2.0], "y": [0.5, 0.5, 2.0]}), tmp_path / "in.parquet"
    )
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=400) as ledger:
        options = Options(user_column="who")
        perturb_file(mechanism, tmp_path / "in.parquet", tmp_path / "out.parquet", options, ledger=ledger)
    found = columns_of(tmp_path / "out.parquet")
    assert found["output_id"] == [IDS["text"][0], None, IDS["text"][4]]
    assert found["output_name"] == [NAMES[0], None, NAMES[4]]


def test_a_ledger_does_not_mix_up_mechanisms_whose_outputs_have_other_ids(tmp_path):
    """Index 0 of one mechanism may be another place for the other, so the last report is not repeated across them."""
    here, there = np.array([[0.5, 0.5]]), np.array([[3.5, 3.5]])
    first, second = (dataclasses.replace(plane(), output_ids=ids) for ids in (IDS["text"], IDS["text"][::-1]))
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=800, beyond="repeat-last") as ledger:
        assert ledger.sample(first, ["a"], here).tolist() == [0]
        assert ledger.sample(second, ["a"], there).tolist() == [3]
        # The budget is spent: each mechanism repeats its own last report.
        assert ledger.sample(first, ["a"], there).tolist() == [0]
        assert ledger.sample(second, ["a"], here).tolist() == [3]
        third = dataclasses.replace(plane(), output_names=NAMES)
        assert ledger.sample(third, ["a"], here).tolist() == [-1]
