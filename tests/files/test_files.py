import functools
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call
from forging import archive_of, npy, opened, parts_of, sealed
from metricdp.files import archive as _archive
from metricdp.files import content_hash, read_file, reading, writing
from metricdp.files.header import _NAME, FORMAT
from metricdp.files.reading import READERS
from metricdp.files.writing import digest as writing_digest
from metricdp.geometry.projection import Equirectangular
from problems import random_problem

HERE = Path(__file__).parents[1]
DESIGNS = {
    "em": {},
    "tem": {},
    "em-remap": {},
    "laplace": {"squares": 8},
    "laplace-remap": {"squares": 8},
    "aipo-e": {"cells": 2},
    "aipo": {"cells": 2, "splits": 3},
    "spline": {"cells": 2},
    "aipo-r": {"cells": 2},
    "lp": {"cells": 2},
    "copt": {"cells": 2},
}
NOT_PRIVATE = ("aipo-r", "lp", "copt")
POINTS = np.random.default_rng(0).uniform(-0.5, 4.5, size=(100, 2))


def designed(method, **changes):
    return mdp.fit(random_problem(0, **changes), 0.7, method, certify=method not in NOT_PRIVATE, **DESIGNS[method])


@pytest.fixture
def mechanism():
    return mdp.fit(random_problem(0, p=math.inf), 0.7, "aipo", cells=2, splits=3)


@pytest.mark.parametrize("method", DESIGNS)
def test_round_trip_is_exact(method, tmp_path):
    mechanism = replace(designed(method), projection=Equirectangular(24.94, 60.17))
    mechanism.save(tmp_path / "m.mdp")
    again = mdp.load(tmp_path / "m.mdp", certify=method not in NOT_PRIVATE)
    assert np.array_equal(again.probabilities(POINTS), mechanism.probabilities(POINTS))
    assert np.array_equal(again.outputs, mechanism.outputs)
    assert np.array_equal(again.bounds, mechanism.bounds)
    assert (again.epsilon, again.p, again.method) == (0.7, 2.0, method)
    assert again.projection == mechanism.projection
    assert again.report == {**mechanism.report, "library": mdp.__version__}
    assert mdp.certify(again).holds == (method not in NOT_PRIVATE)
    assert content_hash(again) == content_hash(mechanism) == content_hash(tmp_path / "m.mdp")
    assert [f.name for f in tmp_path.iterdir()] == ["m.mdp"]


def test_numbers_that_json_lacks_survive(mechanism, tmp_path):
    mechanism.save(tmp_path / "m.mdp")
    again = mdp.load(tmp_path / "m.mdp")
    assert again.p == again.report["certificate"]["p"] == math.inf
    replace(mechanism, report={"x": [math.nan, np.float64(-math.inf)], "y": (np.int64(3),)}).save(tmp_path / "m.mdp")
    report = mdp.load(tmp_path / "m.mdp").report
    assert (report["x"], report["y"]) == (["nan", "-inf"], [3])


@pytest.mark.parametrize("method", NOT_PRIVATE)
def test_what_is_not_private_is_not_loaded_silently(method, tmp_path):
    designed(method).save(tmp_path / "m.mdp")
    with pytest.raises(mdp.NotCertified, match=r"m\.mdp.*certify=False"):
        mdp.load(tmp_path / "m.mdp")


def test_a_forged_epsilon_is_found_out_though_the_hash_is_right(tmp_path):
    designed("em").save(tmp_path / "m.mdp")
    header, arrays = opened((tmp_path / "m.mdp").read_bytes())
    header["epsilon"] = "0.1"
    (tmp_path / "forged.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.InvalidInputError, match=r"`certificate` must be one that holds for epsilon = 0\.1"):
        mdp.load(tmp_path / "forged.mdp")
    header["certificate"] = None
    (tmp_path / "forged.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.NotCertified, match="stored rate"):
        mdp.load(tmp_path / "forged.mdp")


def test_the_header_says_what_the_mechanism_is(tmp_path):
    replace(designed("spline"), projection=Equirectangular(24.94, 60.17)).save(tmp_path / "m.mdp")
    header, _ = opened((tmp_path / "m.mdp").read_bytes())
    assert (header["format"], header["distance"]) == (3, "plane")
    assert (header["kind"], header["method"], header["epsilon"], header["p"]) == ("spline", "spline", "0.7", "2.0")
    assert header["box"] == [[0.0, 0.0], [4.0, 4.0]]
    assert header["units"] == "km"
    assert header["projection"]["lat_deg"] == 60.17
    assert header["grid"] == {"cells": [2, 2], "degree": header["settings"]["degree"]}
    assert {"solver", "repair_mix", "gap"} <= set(header["report"])
    assert header["library"] == mdp.__version__
    assert header["certificate"]["holds"] is True


def test_the_hash_is_the_documented_one(mechanism, tmp_path):
    mechanism = with_places(mechanism, (10, 20, 30, 40, 50), ("Töölö", "b", "", "", "e"))
    mechanism.save(tmp_path / "m.mdp")
    with zipfile.ZipFile(tmp_path / "m.mdp") as archive:
        text = archive.read("header.json")
        names = sorted(set(archive.namelist()) - {"header.json"})
        arrays = {name: np.load(io.BytesIO(archive.read(name))) for name in names}
    stored = json.loads(text)["sha256"]
    digest = hashlib.sha256(text.replace(stored.encode(), b"0" * 64))
    for name, array in arrays.items():
        shape = ",".join(str(side) for side in array.shape)
        digest.update(f"{name.removesuffix('.npy')} {array.dtype.str} {shape}\n".encode() + array.tobytes())
    assert digest.hexdigest() == stored == content_hash(mechanism) == content_hash(tmp_path / "m.mdp")


def test_equal_mechanisms_make_equal_files(mechanism, tmp_path):
    for name in ("a.mdp", "b.mdp"):
        mechanism.save(tmp_path / name)
    assert (tmp_path / "a.mdp").read_bytes() == (tmp_path / "b.mdp").read_bytes()
    assert content_hash(replace(mechanism, epsilon=0.8)) != content_hash(mechanism)


def test_every_flipped_bit_is_noticed(tmp_path):
    """One bit of one byte, at every byte of the header and of each array; the checksum of the zip is mended."""
    with_places(designed("em"), (10, 20, 30, 40, 50), ("Töölö", "b", "", "", "e")).save(tmp_path / "m.mdp")
    parts = parts_of((tmp_path / "m.mdp").read_bytes())
    rng = np.random.default_rng(0)
    tried = 0
    for name, content in parts.items():
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 1 << int(rng.integers(8))
            (tmp_path / "bad.mdp").write_bytes(archive_of((parts | {name: bytes(changed)}).items(), 0))
            # The padding of an array's header says nothing; a reader may not notice, but must not be misled.
            padding = name != "header.json" and content[:128].rstrip(b" \n").rfind(b"}") < place < 127
            try:
                found = content_hash(tmp_path / "bad.mdp")
            except mdp.InvalidInputError:
                tried += 1
            else:
                assert padding and found == content_hash(tmp_path / "m.mdp")
    assert tried > 1000


def example_of(number, folder):
    """Return a file of a format: an old one that was kept, or one that is written now."""
    if number == FORMAT:
        designed("em").save(folder / "m.mdp")
        return folder / "m.mdp"
    return HERE / "data" / f"em-format-{number}.zip"


def test_every_method_and_version_has_a_name_that_files_take():
    for name in (*mdp.METHODS, mdp.__version__, "0.2.0.dev1+g1234"):
        assert _NAME.fullmatch(name)


def test_every_format_up_to_the_present_one_has_a_reader():
    assert sorted(READERS) == list(range(1, FORMAT + 1))


@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_every_format_number_is_read_by_its_own_reader(number, tmp_path, monkeypatch):
    path = example_of(number, tmp_path)
    assert read_file(path).format == number
    for others in set(READERS) - {number}:
        monkeypatch.delitem(READERS, others)
    assert mdp.load(path).method == "em"
    monkeypatch.delitem(READERS, number)
    with pytest.raises(mdp.InvalidInputError, match=f"format {number} is not known to this version"):
        mdp.load(path)


def test_a_file_of_the_present_format_is_hashed_once(tmp_path, monkeypatch):
    path, counted = example_of(FORMAT, tmp_path), []
    for module in (reading, writing):
        monkeypatch.setattr(module, "digest", lambda *given: counted.append(1) or writing_digest(*given))
    stored = opened(path.read_bytes())[0]["sha256"]
    assert (read_file(path).sha256, len(counted)) == (stored, 1)
    mdp.load(path)
    assert len(counted) == 2
    assert (content_hash(path), len(counted)) == (stored, 3)


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "data").glob("*.zip")))
def test_earlier_formats_are_still_read(name, tmp_path):
    path, number = HERE / "data" / f"{name}.zip", int(name[-1])
    mechanism = mdp.load(path)
    known = json.loads((HERE / "data" / f"format-{number}.json").read_text())[name.removesuffix(f"-format-{number}")]
    # Laplace mechanisms did not round points to the lattice, which moves them by half a millimetre.
    assert mechanism.probabilities(known["points"]) == pytest.approx(np.array(known["probabilities"]), rel=2e-6)
    assert mechanism.method == known["method"]
    assert (mechanism.projection is not None) == ("city" in name)
    assert mechanism.distance == "plane"
    assert mechanism.report["library"] == "0.1.0"
    assert read_file(path).format == number
    mechanism.save(tmp_path / "m.mdp")
    assert read_file(tmp_path / "m.mdp").format == 3
    assert content_hash(path) == content_hash(tmp_path / "m.mdp")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(mechanism, tmp_path, monkeypatch):
    target = tmp_path / "m.mdp"
    target.write_text("precious")
    monkeypatch.setattr("metricdp.files.writing.write_archive", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        mechanism.save(target)
    assert target.read_text() == "precious"
    assert [f.name for f in tmp_path.iterdir()] == ["m.mdp"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"report": {"x": "a" * 2**20}}, "`report` must be short enough"),
        ({"report": {"x": object()}}, "`report` must be made of numbers"),
        ({"method": "\x1b[2J"}, "`method` must be a short name"),
        ({"epsilon": 0.6}, "`certificate` must be one that holds for epsilon = 0.6"),
        ({"outputs": np.zeros((5, 3))}, "`outputs` must be an array of shape"),
        ({"bounds": np.array([[0.0, 0.0], [5.0, 4.0]])}, "`breakpoints` must be arrays that span the box"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(mechanism, tmp_path, changes, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        replace(mechanism, **changes).save(tmp_path / "m.mdp")
    assert not list(tmp_path.iterdir())


def set_field(**changes):
    return lambda header, arrays: header.update(certificate=None, **changes)


def set_setting(**changes):
    return lambda header, arrays: header["settings"].update(changes)


def set_array(name, array):
    return lambda header, arrays: arrays.update({name: array})


ANY_KIND = {
    "no-format": (lambda header, arrays: header.pop("format"), "it lacks 'format'"),
    "format": (set_field(format=99), "format 99 is not known"),
    "kind": (set_field(kind="unknown"), "`kind` must be one of"),
    "kind-type": (set_field(kind=[]), "`kind` must be of type str, got list"),
    "epsilon": (set_field(epsilon="-1"), "`epsilon` must be a decimal number, got '-1'"),
    "epsilon-zero": (set_field(epsilon="0.0"), "`epsilon` must be a positive finite number"),
    "epsilon-inf": (set_field(epsilon="inf"), "`epsilon` must be a decimal number"),
    "epsilon-huge": (set_field(epsilon="1e+300"), "`epsilon` must be from 1e-100 to 1e"),
    "epsilon-type": (set_field(epsilon=1.0), "`epsilon` must be of type str, got float"),
    "epsilon-not-canonical": (set_field(epsilon="0.70"), "not those that its mechanism would be saved with"),
    "p": (set_field(p="0.2"), "`p` must be a number in"),
    "box": (set_field(box=[[0.0, 0.0], [-1.0, 1.0]]), "`box` must be a lower and a higher corner"),
    "box-nan": (set_field(box=[[0.0, 0.0], [4.0, math.nan]]), "not JSON|its contents|`box` must be finite"),
    "box-text": (set_field(box=[["a"]]), "`box` must be an array of numbers"),
    "box-huge": (set_field(box=[[0, 0], [10**400, 1]]), "too large"),
    "box-narrow": (set_field(box=[[1e12, 0.0], [1e12 + 1, 1.0]]), "`box` must be a lower and a higher corner"),
    "units": (set_field(units="miles"), "not those that its mechanism would be saved with"),
    "report": (set_field(report=3), "`report` must be of type dict"),
    "method": (set_field(method="[/bold]"), "`method` must be a short name"),
    "library": (set_field(library="\x1b[2J"), r"`library` must be a short name.*got '\\x1b\[2J'"),
    "field": (set_field(code="import os"), "`header` must be made of"),
    "certificate": (lambda h, a: h.update(certificate={"holds": True, "epsilon": 0.1, "p": 2.0}), "`certificate` must"),
    "certificate-empty": (lambda h, a: h.update(certificate={}), "it lacks 'p'"),
    "projection": (set_field(projection={"kind": "utm"}), "`projection` must be a mapping"),
    "projection-axes": (set_field(projection={}, box=[[0.0], [1.0]]), "`outputs` must be an array of shape|two axes"),
    "setting": (set_setting(more=1), "`settings` must be those of kind"),
    "setting-list": (set_setting(outputs=[1.0]), "`settings.outputs` must be a number or text"),
    "outputs": (set_array("outputs", np.zeros((5, 3))), "`outputs` must be an array of shape"),
    "outputs-none": (set_array("outputs", np.zeros((0, 2))), "`outputs` must be non-empty"),
    "outputs-nan": (set_array("outputs", np.full((5, 2), np.nan)), "`outputs` must be finite"),
    "outputs-huge": (set_array("outputs", np.full((5, 2), 1e101)), "`outputs` must be of coordinates up to"),
    "outputs-int": (set_array("outputs", np.zeros((5, 2), dtype=np.int64)), "not those that its mechanism would be"),
    "no-outputs": (lambda header, arrays: arrays.pop("outputs"), "it lacks 'outputs'"),
    "array": (set_array("more", np.zeros(3)), "`settings` must be those of kind"),
    "array-type": (
        set_array("outputs", np.zeros((5, 2), dtype=np.float32)),
        "not an array of float64, int64 or uint16",
    ),
    "array-text": (set_array("outputs", np.zeros((5, 2), dtype=np.uint8)), "`outputs` must be an array of numbers"),
    "setting-text": (set_array("labels", np.zeros(5, dtype=np.uint8)), "`labels` must be an array of numbers"),
}
BY_KIND = {
    "em": [
        (set_setting(rate=0.0), "`rate` must be a positive"),
        (set_setting(rate="nan"), "`rate` must be a positive"),
        (set_setting(rate=None), "`rate` must be a positive"),
        (set_setting(rate=1e9), "`rate` must be at most"),
        (set_setting(clip=-1.0), "`clip` must be a finite distance"),
        (set_setting(clip="x"), "could not convert"),
        (set_setting(clip=True), "not those that its mechanism would be saved with"),
        (set_array("labels", np.arange(4)), "`labels` must be one for each of the 5 outputs"),
        (set_array("labels", np.arange(5) + 1), "`labels` must be from 0 to 4"),
        (set_array("labels", np.arange(5.0)), "`labels` must be a non-empty array of whole numbers"),
        (lambda header, arrays: arrays.pop("labels"), "it lacks 'labels'"),
        (lambda header, arrays: header["settings"].pop("rate"), "it lacks 'rate'"),
    ],
    "laplace": [
        (set_setting(rate=-1.0), "`rate` must be a positive"),
        (set_setting(rate=1e-3), "`window` must be at least 1000"),
        (set_array("window", np.zeros((2, 3))), "`window` must be of shape"),
        (set_array("window", np.full((2, 2), np.inf)), "`window` must be finite"),
        (set_array("window", np.array([[9.0, 9.0], [-9.0, -9.0]])), "`window` must be at least"),
        (set_array("window", np.array([[-1e12, -1e12], [1e12, 1e12]])), "`rate` must be at most"),
        (set_array("window", np.array([[-3e6, -3e6], [3e6, 3e6]])), "`labels` must be of at most 1,048,576 panels"),
        (set_array("labels", np.zeros((2, 2, 2), dtype=np.int64)), "`labels` must be a non-empty array"),
        (set_array("labels", np.full((8, 8), -1)), "`labels` must be from 0 to 4"),
        (set_field(distance="ground"), "`distance` must be 'plane' for a mechanism without a projection"),
        (set_field(distance="space"), "`distance` must be one of"),
        (set_setting(rate=1e-9), "Noise over this box can be drawn exactly at rates from"),
    ],
    "lp": [
        (set_array("table", np.full((4, 5), 0.1)), "`table` must be non-negative with rows that sum to 1"),
        (set_array("table", np.full((4, 5), np.nan)), "`table` must be finite"),
        (set_array("table", np.full((5, 5), 0.2)), "`table` must be of shape"),
        (set_array("breakpoints_0", np.array([0.0, 3.0, 2.0])), "strictly increasing"),
        (set_array("breakpoints_0", np.array([0.0, 1e-10, 4.0])), "`breakpoints` must be apart"),
        (set_array("breakpoints_0", np.array([0.0, 2.0, 9.0])), "`breakpoints` must be arrays that span the box"),
        (lambda header, arrays: arrays.pop("breakpoints_1"), "it lacks 'breakpoints_1'"),
    ],
    "aipo-e": [
        (set_array("log_table", np.zeros((2, 2))), "`log_table` must be"),
        (set_array("log_table", np.full((9, 5), np.nan)), "`log_table` must be finite"),
        (set_setting(log_table=3.0), "`settings.log_table` must be a number or text"),
        (set_array("breakpoints_0", np.array([0.0, 3.0, 2.0])), "strictly increasing"),
    ],
    "spline": [
        (set_setting(degree=4), "`degree` must be"),
        (set_setting(degree="2"), "`degree` must be"),
        (set_setting(degree=1), "`table` must be"),
        (set_setting(step=2.0**-19), "`step` must be at most 9.54e-07 for this box"),
        (set_setting(step=3 * 2.0**-30), "`step` must be a power of two"),
        (set_array("table", np.zeros((2, 2))), "`table` must be"),
    ],
}
CASES = [("em", *case) for case in ANY_KIND.values()] + [
    (method, *case) for method, cases in BY_KIND.items() for case in cases
]


@functools.cache
def sound(method):
    """Return the bytes of a sound file, made once."""
    with tempfile.TemporaryDirectory() as folder:
        designed(method).save(Path(folder) / "m.mdp")
        return (Path(folder) / "m.mdp").read_bytes()


def lines(*texts):
    """Return texts as a file holds them, whatever they are."""
    return np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"), dtype=np.uint8)


def raw(content):
    return np.frombuffer(content, dtype=np.uint8)


HUGE = b"a" * 2**20 + b"\n"
ONE_LINE_EACH = "bytes of text with one line for each of the 5 outputs"
IDS = {
    "few": (np.arange(4), ONE_LINE_EACH),
    "many": (np.arange(6), ONE_LINE_EACH),
    "two-axes": (np.arange(5)[:, None], ONE_LINE_EACH),
    "floats": (np.arange(5.0), ONE_LINE_EACH),
    "twice": (np.array([1, 2, 3, 4, 1]), "different from each other, got 1 at index 0 and 4"),
    "twice-text": (lines(*"abcda"), "different from each other"),
    "empty": (lines(*"abcd", ""), "made of texts of 1 to 256 characters"),
}
TEXTS = {
    "few-lines": (lines(*"abcd"), ONE_LINE_EACH),
    "many-lines": (lines(*"abcdef"), ONE_LINE_EACH),
    "no-line": (raw(b""), ONE_LINE_EACH),
    "million-lines": (raw(b"\n" * 2**20), ONE_LINE_EACH),
    "huge-line": (raw(b"a\nb\nc\nd\n" + HUGE), ONE_LINE_EACH),
    "two-axes": (lines(*"abcde")[:, None], ONE_LINE_EACH),
    "not-ended": (raw(b"a\nb\nc\nd\n\ne"), ONE_LINE_EACH),
    "not-utf-8": (raw(b"a\nb\nc\nd\n\xff\n"), "UTF-8, got other bytes at index 8"),
    "overlong": (raw(b"a\nb\nc\nd\n\xc0\x80\n"), "UTF-8"),
    "surrogate": (lines(*"abcd", "\ud800"), "UTF-8"),
    "long": (lines(*"abcd", "a" * 257), "texts of . to 256 characters, got 257 at index 4"),
    "nul": (lines(*"abcd", "a\0b"), "free of control characters"),
    "ansi": (lines(*"abcd", "\x1b[2J"), r"free of control characters.*got '\\x1b' at index 4"),
    "carriage-return": (lines(*"abcd", "a\r"), r"free of control characters.*got '\\r'"),
    "bidi": (lines(*"abcd", "a\u202eb"), r"overrides of the writing direction.*got '\\u202e'"),
}
PLACES = [("output_ids", *case) for case in (IDS | TEXTS).values()] + [
    ("output_names", *case) for case in ({"integers": (np.arange(5), ONE_LINE_EACH)} | TEXTS).values()
]


@pytest.mark.parametrize(("name", "array", "words"), PLACES)
def test_forged_ids_and_names_are_refused(tmp_path, name, array, words):
    """Each with the right hash; what is said of it can be shown on a terminal."""
    header, arrays = opened(sound("em"))
    (tmp_path / "bad.mdp").write_bytes(sealed(header, arrays | {name: array}))
    with pytest.raises(mdp.InvalidInputError, match=rf"bad\.mdp.*`{name}` must be.*{words}") as caught:
        mdp.load(tmp_path / "bad.mdp", certify=False)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("array", [raw(b""), lines("a"), np.empty(0, dtype=np.int64)])
def test_noise_has_no_ids(tmp_path, array):
    mdp.noise(1.0, bounds=[[0.0, 0.0], [1.0, 1.0]]).save(tmp_path / "m.mdp")
    header, arrays = opened((tmp_path / "m.mdp").read_bytes())
    (tmp_path / "bad.mdp").write_bytes(sealed(header, arrays | {"output_ids": array}))
    with pytest.raises(mdp.InvalidInputError, match="`output_ids` must be"):
        mdp.load(tmp_path / "bad.mdp")


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", ["output_ids", "output_names"])
def test_formats_before_the_third_have_no_ids(tmp_path, number, name):
    header, arrays = opened((HERE / "data" / f"em-format-{number}.zip").read_bytes())
    (tmp_path / "old.mdp").write_bytes(sealed(header, arrays))
    assert mdp.load(tmp_path / "old.mdp").output_ids is None
    texts = lines(*map(str, range(len(arrays["outputs"]))))
    (tmp_path / "bad.mdp").write_bytes(sealed(header, arrays | {name: texts}))
    with pytest.raises(mdp.InvalidInputError, match=r"`format` must be 3|its mechanism would be saved with"):
        mdp.load(tmp_path / "bad.mdp")


def with_places(mechanism, ids, names=None):
    return replace(mechanism, output_ids=ids, output_names=names)


@pytest.mark.parametrize("method", DESIGNS)
def test_ids_and_names_survive_a_round_trip(method, tmp_path):
    ids, names = ("1", "b", "c d", "é", "日本"), ("", "", "<img src=x>", "a,b", "\u200d🏴")
    mechanism = with_places(designed(method), ids, names)
    mechanism.save(tmp_path / "m.mdp")
    again = read_file(tmp_path / "m.mdp").mechanism.with_report(note=1)
    assert (again.output_ids, again.output_names) == (ids, names)
    assert content_hash(tmp_path / "m.mdp") == content_hash(mechanism)
    assert mdp.certify(again).claim == mdp.certify(designed(method)).claim


def test_the_hash_covers_ids_and_names():
    plain = designed("em")
    numbers, letters = (1, 2, 3, 4, 5), tuple("12345")
    variants = [
        plain,
        with_places(plain, numbers),
        with_places(plain, numbers[::-1]),
        with_places(plain, letters),
        with_places(plain, None, letters),
        with_places(plain, numbers, letters),
        with_places(plain, letters, letters[::-1]),
    ]
    assert len({content_hash(one) for one in variants}) == len(variants)


def test_integer_ids_are_exact_to_the_last_of_64_bits(tmp_path):
    ids = (-(2**63), 2**63 - 1, 0, 2**53 + 1, -1)
    with_places(designed("em"), ids).save(tmp_path / "m.mdp")
    assert mdp.load(tmp_path / "m.mdp").output_ids == ids


def test_many_places_with_long_names_fit(tmp_path):
    count = 2000
    outputs = np.random.default_rng(0).uniform(0, 4, (count, 2))
    texts = tuple(chr(0x1F300) * 250 + f"{number:06}" for number in range(count))
    problem = mdp.Problem([[0.0, 0.0], [4.0, 4.0]], outputs, "euclidean", output_ids=texts, output_names=texts)
    mechanism = mdp.fit(problem, 1.0, "em")
    mechanism.save(tmp_path / "m.mdp")
    again = mdp.load(tmp_path / "m.mdp")
    assert (again.output_ids, again.output_names) == (texts, texts)
    with zipfile.ZipFile(tmp_path / "m.mdp") as archive:
        assert archive.getinfo("header.json").file_size < 5000
        assert archive.getinfo("output_names.npy").file_size > 2**20


@pytest.mark.parametrize(("method", "change", "words"), CASES)
def test_forged_files_are_refused(tmp_path, method, change, words):
    """Each with the right hash, so that it is the field itself that is refused."""
    header, arrays = opened(sound(method))
    change(header, arrays)
    (tmp_path / "bad.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.InvalidInputError, match=rf"(?s)bad\.mdp.*({words})"):
        mdp.load(tmp_path / "bad.mdp", certify=False)


def deep(parts):
    parts["header.json"] = b"[" * 200_000


def twice(parts):
    parts["header.json"] = parts["header.json"].replace(b'"format"', b'"format": 3, "format"')


ARCHIVES = {
    "no-header": (lambda parts: parts.pop("header.json"), "no header.json"),
    "not-json": (lambda parts: parts.update({"header.json": b"not json"}), "Expecting value"),
    "no-object": (lambda parts: parts.update({"header.json": b"[]"}), "`header` must be a JSON object"),
    "deep": (deep, "recursion"),
    "long-number": (lambda parts: parts.update({"header.json": b"9" * 10_000}), "digits"),
    "long-header": (lambda parts: parts.update({"header.json": b" " * (2**20 + 1)}), "a header of more than"),
    "twice": (twice, "a field twice"),
    "unknown": (lambda parts: parts.update({"code.py": b"import os"}), "unknown name 'code.py'"),
    "path": (lambda parts: parts.update({"../x.npy": b""}), "unknown name"),
    "many": (lambda parts: parts.update({f"a{n}.npy": b"" for n in range(70)}), "too many entries"),
    "short-array": (lambda parts: parts.update({"outputs.npy": parts["outputs.npy"][:-1]}), "as many numbers"),
    "long-array": (lambda parts: parts.update({"outputs.npy": parts["outputs.npy"] + b" "}), "as many numbers"),
    "empty-array": (lambda parts: parts.update({"outputs.npy": b""}), "not an array"),
    "objects": (lambda parts: parts.update({"outputs.npy": npy(np.array([{}], dtype=object))}), "not an array"),
    "huge-shape": (
        lambda parts: parts.update({"outputs.npy": parts["outputs.npy"].replace(b"(5, 2)", b"(999999999999, 2)")}),
        "not an array|as many numbers",
    ),
    "bomb": (lambda parts: parts.update({"outputs.npy": bytes(2**26)}), "more than 67,108,864 deflated bytes"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_damaged_archives_are_refused(case, tmp_path):
    change, words = ARCHIVES[case]
    parts = parts_of(sound("em"))
    change(parts)
    (tmp_path / "bad.mdp").write_bytes(archive_of(parts.items()))
    with pytest.raises(mdp.InvalidInputError, match=rf"(?s)bad\.mdp.*({words})"):
        mdp.load(tmp_path / "bad.mdp")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"epsilon"', '"epsilon": "0.1",\n "epsilon"', 1).encode(), "a field twice"),
        (lambda text: text.replace('"report": {', '"report": {"a": {"b": 1, "b": 2}, ', 1).encode(), "a field twice"),
        (
            lambda text: text.replace('"report": {', f'"report": {{"a": {"[" * 99}{"]" * 99}, ', 1).encode(),
            "nested at most",
        ),
        (lambda text: text.encode("utf-16"), "utf-8"),
        (lambda text: text.encode("utf-8-sig"), "BOM"),
        (
            lambda text: text.replace('"report": {', '"report": {"a": "\udc80", ', 1).encode(errors="surrogateescape"),
            "utf-8",
        ),
    ],
    ids=["field", "inner field", "deep", "utf-16", "byte order mark", "no utf-8"],
)
def test_headers_that_others_may_read_differently_are_refused_whatever_their_hash(change, words, tmp_path):
    """With a fresh hash: of two fields of one name, another reader may believe the other one."""
    parts = parts_of(sound("em"))
    header, arrays = opened(sound("em"))
    text = parts["header.json"].decode().replace(header["sha256"], "0" * 64)
    blank = change(text)
    parts["header.json"] = blank.replace(b"0" * 64, writing_digest(blank, arrays).encode())
    (tmp_path / "bad.mdp").write_bytes(archive_of(parts.items()))
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.load(tmp_path / "bad.mdp")


def test_an_archive_that_lies_about_its_sizes_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    parts = parts_of(sound("em"))
    bomb = archive_of((parts | {"outputs.npy": bytes(2**26)}).items())
    # The directory says that the entry is as short as the limit allows.
    entry = bomb.rindex(b"outputs.npy") - 46
    lying = bomb[: entry + 24] + (1000).to_bytes(4, "little") + bomb[entry + 28 :]
    (tmp_path / "bad.mdp").write_bytes(lying)
    largest = []
    read = zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=None: largest.append(n) or read(self, n))
    with pytest.raises(mdp.InvalidInputError, match=r"bad\.mdp"):
        mdp.load(tmp_path / "bad.mdp")
    assert max(largest) < 10_000
    overlap = archive_of(parts.items(), zipfile.ZIP_STORED)
    entry = overlap.rindex(b"outputs.npy") - 46
    size = len(overlap).to_bytes(4, "little")
    (tmp_path / "bad.mdp").write_bytes(overlap[: entry + 20] + 2 * size + overlap[entry + 28 :])
    with pytest.raises(mdp.InvalidInputError, match="entries larger than the file"):
        mdp.load(tmp_path / "bad.mdp")


def test_a_directory_of_a_million_entries_is_not_read(tmp_path):
    data = sound("em")
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    directory = data[start:end] * 3000
    record = data[end : end + 12] + len(directory).to_bytes(4, "little") + data[end + 16 :]
    (tmp_path / "bad.mdp").write_bytes(data[:start] + directory + record)
    with pytest.raises(mdp.InvalidInputError, match="bytes at once"):
        mdp.load(tmp_path / "bad.mdp")


@pytest.mark.parametrize(("growth", "packed"), [(1, zipfile.ZIP_STORED), (16, zipfile.ZIP_DEFLATED)])
def test_large_mechanisms_are_deflated_as_far_as_readers_allow(tmp_path, monkeypatch, growth, packed):
    monkeypatch.setattr(_archive, "_LARGEST_DEFLATED", 1000)
    monkeypatch.setattr(_archive, "_LARGEST_GROWTH", growth)
    mechanism = designed("em")
    mechanism.save(tmp_path / "m.mdp")
    with zipfile.ZipFile(tmp_path / "m.mdp") as archive:
        assert {info.compress_type for info in archive.infolist()} == {packed}
    assert content_hash(tmp_path / "m.mdp") == content_hash(mechanism)


def test_truncated_and_foreign_files_are_refused(mechanism, tmp_path):
    mechanism.save(tmp_path / "m.mdp")
    whole = (tmp_path / "m.mdp").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.mdp").write_bytes(whole[:size])
        with pytest.raises(mdp.InvalidInputError, match=r"cut\.mdp"):
            mdp.load(tmp_path / "cut.mdp")
    with pytest.raises(FileNotFoundError):
        mdp.load(tmp_path / "none.mdp")
    with pytest.raises(mdp.InvalidInputError, match="not a file"):
        mdp.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(mdp.InvalidInputError, match="not a file"):
        mdp.load(tmp_path / "pipe")


def test_arrays_in_fortran_order_are_read(tmp_path):
    designed("em").save(tmp_path / "m.mdp")
    parts = parts_of((tmp_path / "m.mdp").read_bytes())
    outputs = np.load(io.BytesIO(parts["outputs.npy"]))
    parts["outputs.npy"] = npy(np.asfortranarray(outputs))
    assert b"'fortran_order': True" in parts["outputs.npy"]
    (tmp_path / "f.mdp").write_bytes(archive_of(parts.items()))
    assert content_hash(tmp_path / "f.mdp") == content_hash(tmp_path / "m.mdp")


def run_mutants(count, seed):
    answer = subprocess.run(
        [sys.executable, HERE / "file_mutants.py", str(count), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert not found["crashes"], "\n".join(found["crashes"])
    outcomes = [name for results in found["counts"].values() for name in results]
    assert {"refused", "not certified", "another that certifies", "unchanged"} == set(outcomes)


def test_mutants_are_refused_or_certify():
    run_mutants(1500, seed=0)


@pytest.mark.slow
def test_ten_thousand_mutants_are_refused_or_certify():
    run_mutants(10_000, seed=1)


def certify_command(path, *options):
    """Run `metricdp certify` and return its exit code, stdout and stderr."""
    answer = call("certify", path, *options, cwd=path.parent)
    return answer.returncode, answer.stdout, answer.stderr


def test_certify_speaks_plainly_of_cities(tmp_path):
    city = Equirectangular(24.94, 60.17)
    mechanism = replace(mdp.fit(random_problem(0), 0.4, "em"), projection=city)
    mechanism.save(tmp_path / "m.mdp")
    code, spoken, _ = certify_command(tmp_path / "m.mdp")
    assert code == 0
    words = "Two people 500 m apart: no report is more than 1.23 times likelier from one than from the other."
    for part in ("holds: (0.4, d_2)-mDP on the whole box", words, content_hash(mechanism)[:16], "[0, 4] x [0, 4] km"):
        assert part in spoken
    found = json.loads(certify_command(tmp_path / "m.mdp", "--json")[1])
    assert found["sha256"] == content_hash(mechanism)
    assert (found["format"], found["library"], found["method"]) == (3, mdp.__version__, "em")
    assert found["holds"] is True


def test_certify_speaks_plainly_of_other_data(tmp_path):
    designed("aipo-e").save(tmp_path / "m.mdp")
    code, spoken, _ = certify_command(tmp_path / "m.mdp")
    assert code == 0
    assert "Two points 1.43 (1/ε) apart: no report is more than 2.72 times likelier" in spoken
    assert "worst ratio" in spoken


def test_certify_does_not_choke_on_a_large_epsilon(tmp_path):
    city = Equirectangular(24.94, 60.17)
    replace(mdp.fit(random_problem(0), 1e5, "em"), projection=city).save(tmp_path / "m.mdp")
    assert "no report is more than e^50000 times likelier" in certify_command(tmp_path / "m.mdp")[1]


def test_certify_tells_failure_from_damage(tmp_path):
    designed("lp").save(tmp_path / "m.mdp")
    code, spoken, _ = certify_command(tmp_path / "m.mdp")
    assert code == 1
    assert "does not hold" in spoken
    (tmp_path / "cut.mdp").write_bytes((tmp_path / "m.mdp").read_bytes()[:-30])
    code, spoken, error = certify_command(tmp_path / "cut.mdp")
    assert (code, spoken) == (2, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
