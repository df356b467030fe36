"""Ids and names of outputs: what is accepted, and how they travel from a problem to a mechanism."""

import copy
import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metricdp as mdp
from metricdp import InvalidInputError, Problem
from metricdp._places import axis_names, checked_ids, checked_names
from metricdp.geometry.projection import Equirectangular
from problems import random_problem

RECORDS = [[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]
OUTPUTS = [[0.0, 0.0], [3.0, 3.0]]
IDS, NAMES = ("a-1", "b-2"), ("Rautatientori", "Töölö <b>")

COPIES = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]


def problem(**more):
    return Problem(RECORDS, OUTPUTS, "euclidean", **more)


@pytest.mark.parametrize(
    ("given_ids", "kept"),
    [
        (["a", "b"], ("a", "b")),
        (np.array(["a", "b"]), ("a", "b")),
        (pd.Series(["a", "b"], index=[7, 8]), ("a", "b")),
        (pd.Index(["a", "b"]), ("a", "b")),
        (["x" * 256, "日本 \u200d\u00a0"], ("x" * 256, "日本 \u200d\u00a0")),
        (np.array([3, 1], dtype=np.uint8), (3, 1)),
        ([-(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        (range(5, 7), (5, 6)),
        (pd.Series([5, 6], dtype="Int64"), (5, 6)),
    ],
)
def test_ids_are_kept_as_plain_text_or_integers(given_ids, kept):
    found = problem(output_ids=given_ids).output_ids
    assert found == kept
    assert {type(one) for one in found} == {type(kept[0])}


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a"], "`output_ids` must be of length 2, one for each output, got length 1"),
        ("ab", "`output_ids` must be a list with one entry for each output, got str"),
        ({"a": 1, "b": 2}, "got dict"),
        ({"a", "b"}, "got set"),
        (iter("ab"), "got str"),
        (5, "got int"),
        (np.array(5), "got ndarray"),
        (np.zeros((2, 2), dtype=int), "got ndarray"),
        (pd.DataFrame({"a": [1, 2], "b": [1, 2]}), "got DataFrame"),
        (["a", "a"], "`output_ids` must be different from each other, got 'a' at index 0 and 1"),
        ([7, 7], "got 7 at index 0 and 1"),
        (["a", 1], "all of them text or all of them integers, got 1 at index 1"),
        ([1, "a"], "all of them text or all of them integers, got 1 at index 0"),
        (["a", None], "got None at index 1"),
        ([1, None], "integers of 64 bits, got None at index 1"),
        ([1, 2.0], "integers of 64 bits, got 2.0 at index 1"),
        ([1, float("nan")], "got nan at index 1"),
        ([1, pd.NA], "got <NA> at index 1"),
        ([0, True], "got True at index 1"),
        (np.array([True, False]), "got .*True.* at index 0"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), "integers of 64 bits"),
        ([1, 2**63], "integers of 64 bits, got 9223372036854775808 at index 1"),
        ([1, -(2**63) - 1], "integers of 64 bits"),
        (np.array([1, 2**64 - 1], dtype=np.uint64), "integers of 64 bits"),
        ([b"a", b"b"], "got b'a' at index 0"),
        (["a", ""], "texts of 1 to 256 characters, got 0 at index 1"),
        (["a", "x" * 257], "texts of 1 to 256 characters, got 257 at index 1"),
    ],
)
def test_ids_that_break_a_rule_are_refused(ids, words):
    with pytest.raises(InvalidInputError, match=words):
        problem(output_ids=ids)


@pytest.mark.parametrize("letter", ["\0", "\n", "\t", "\x1b", "\x7f", "\x9b", "\u2028", "\u202e", "\u2066", "\ud800"])
@pytest.mark.parametrize("parameter", ["output_ids", "output_names"])
def test_what_could_act_on_a_terminal_is_refused_and_shown_escaped(parameter, letter):
    with pytest.raises(InvalidInputError, match="control characters") as caught:
        problem(**{parameter: ["fine", f"a{letter}b"]})
    assert str(caught.value).isprintable()
    assert f"`{parameter}`" in str(caught.value)
    assert "at index 1" in str(caught.value)


@given(st.lists(st.text(min_size=1, max_size=256), min_size=1, max_size=5, unique=True))
def test_text_is_accepted_just_if_it_can_be_printed_and_encoded(texts):
    forbidden = {*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
    fine = all(ord(letter) not in forbidden | {*range(0xD800, 0xE000)} for text in texts for letter in text)
    for check in (checked_ids, checked_names):
        if fine:
            assert check(texts, len(texts)) == tuple(texts)
        else:
            with pytest.raises(InvalidInputError):
                check(texts, len(texts))


def test_names_may_repeat_or_be_empty_but_must_be_text():
    assert problem(output_names=["", ""]).output_names == ("", "")
    with pytest.raises(InvalidInputError, match="`output_names` must be made of text, got nan at index 1"):
        problem(output_names=["a", float("nan")])
    with pytest.raises(InvalidInputError, match="`output_names` must be of length 2"):
        problem(output_names=["a"])


def test_problems_are_equal_by_content_and_can_be_keys():
    one, other = problem(output_ids=IDS, output_names=NAMES), problem(output_ids=list(IDS), output_names=list(NAMES))
    assert one == other
    assert len({one, other}) == 1
    assert problem() == Problem(RECORDS, [[-0.0, 0.0], [3.0, 3.0]], "euclidean")
    different = [
        problem(),
        problem(output_ids=IDS),
        problem(output_names=NAMES),
        problem(output_ids=IDS[::-1], output_names=NAMES),
        problem(output_ids=IDS, output_names=NAMES[::-1]),
        problem(output_ids=NAMES, output_names=IDS),
        problem(output_ids=IDS, output_names=NAMES, p=1),
        problem(output_ids=IDS, output_names=NAMES, prior=[1, 2, 3]),
        problem(output_ids=IDS, output_names=NAMES, projection=Equirectangular(1, 2)),
        Problem(RECORDS, OUTPUTS, "squared", output_ids=IDS, output_names=NAMES),
    ]
    assert all(one != another for another in different)
    assert len({one, *different}) == 1 + len(different)
    assert problem(output_ids=[1, 2]) != problem(output_ids=["1", "2"])
    assert one != "a problem"


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_problems_and_mechanisms_are_equal_and_read_only(copied):
    given_problem = problem(output_ids=IDS, output_names=NAMES, projection=Equirectangular(24.9, 60.2))
    assert copied(given_problem) == given_problem
    mechanism = mdp.fit(problem(output_ids=IDS, output_names=NAMES), 1.0, "spline", cells=2)
    again = copied(mechanism)
    assert (again.output_ids, again.output_names) == (IDS, NAMES)
    assert not any(points.flags.writeable for points in again.grid.breakpoints)
    for owner in (copied(given_problem), again):
        arrays = [value for value in vars(owner).values() if isinstance(value, np.ndarray)]
        assert len(arrays) >= 3
        assert not any(array.flags.writeable for array in arrays)


@pytest.mark.parametrize("method", sorted(mdp.METHODS))
def test_every_method_carries_ids_and_names_over(method):
    small = random_problem(0, n_axes=1, n_records=12, n_outputs=3)
    ids, names = ("n/1", "n/2", "n/3"), ("a", "b", "a")
    named = Problem(small.records, small.outputs, small.loss, bounds=small.bounds, output_ids=ids, output_names=names)
    options = {"time_limit": 1.0} if method == "auto" else {"cells": 4} if "aipo" in method else {}
    mechanism = mdp.fit(named, 1.0, method, certify=False, **options)
    assert (mechanism.output_ids, mechanism.output_names) == (ids, names)
    changed = dataclasses.replace(mechanism.with_report(note=1), epsilon=2.0)
    assert (changed.output_ids, changed.output_names) == (ids, names)


def test_places_are_a_table_in_degrees_where_there_is_a_projection():
    plane = Equirectangular(24.9, 60.2)
    mechanism = mdp.fit(problem(output_ids=[10, 20], output_names=NAMES, projection=plane), 1.0, "em")
    places = mechanism.places
    assert list(places.columns) == ["id", "name", "lon", "lat"]
    assert places["id"].tolist() == [10, 20]
    assert places["id"].dtype == np.int64
    assert places["name"].tolist() == list(NAMES)
    assert np.array_equal(places[["lon", "lat"]], plane.to_lonlat(OUTPUTS))
    places.loc[0, "lon"] = 0.0
    assert mechanism.places.loc[0, "lon"] == plane.to_lonlat(OUTPUTS)[0, 0]


@pytest.mark.parametrize("n_axes", [1, 2, 3, 4])
def test_places_without_a_projection_have_the_problems_coordinates(n_axes):
    mechanism = mdp.fit(random_problem(0, n_axes=n_axes, n_records=8, n_outputs=3), 1.0, "em")
    columns = {1: ["x"], 2: ["x", "y"], 3: ["x", "y", "z"], 4: ["x0", "x1", "x2", "x3"]}[n_axes]
    assert list(axis_names(n_axes)) == columns
    assert list(mechanism.places.columns) == ["id", *columns]
    assert mechanism.places["id"].tolist() == [0, 1, 2]
    assert np.array_equal(mechanism.places[columns], mechanism.outputs)


def test_noise_has_no_places_and_no_ids():
    noise = mdp.noise(1.0, lonlat_bounds=[[12.2, 41.6], [12.8, 42.1]])
    assert list(noise.places.columns) == ["id", "lon", "lat"]
    assert len(noise.places) == 0
    for parameter in ("output_ids", "output_names"):
        with pytest.raises(InvalidInputError, match=f"`{parameter}` must be left out"):
            dataclasses.replace(noise, **{parameter: ()})


def test_mechanisms_check_ids_and_names_themselves():
    mechanism = mdp.fit(problem(), 1.0, "em")
    assert dataclasses.replace(mechanism, output_ids=["a", "b"]).output_ids == ("a", "b")
    with pytest.raises(InvalidInputError, match="different from each other"):
        dataclasses.replace(mechanism, output_ids=["a", "a"])
    with pytest.raises(InvalidInputError, match="`output_names` must be of length 2"):
        dataclasses.replace(mechanism, output_names=["a"])
