"""The shared vectors in Python: js/test/checks.js runs the same ones in JavaScript."""

from fractions import Fraction

import numpy as np
import pytest

import metricdp as mdp
from device_tools import VECTORS, vectors
from metricdp.mechanisms.noise.exact import LatticeNoise
from vectors_words import ListedWords

FILES = {one["file"]: one for one in vectors()["files"]}
FORGED = {one["file"]: one for one in vectors()["forged"]}


def floats(points):
    return np.array([[float.fromhex(x) for x in point] for point in points])


def check_claim(certificate, expected):
    assert certificate.claim == expected["claim"]
    assert certificate.worst_ratio == pytest.approx(expected["worst_ratio"], abs=1e-12)
    assert (certificate.metres and certificate.metres.statement) == expected["statement"]
    assert (certificate.paths and certificate.paths.statement) == expected["paths"]
    if expected["kappa"] is not None:  # to the last bit or two: libraries of mathematics differ
        assert certificate.metres.kappa == pytest.approx(float.fromhex(expected["kappa"]), rel=1e-15)


@pytest.mark.parametrize("name", FILES)
def test_sound_files_are_proved_with_these_claims_and_places(name):
    expected, mechanism = FILES[name], mdp.load(VECTORS / name)
    check_claim(mdp.certify(mechanism), expected)
    found = mechanism.places.to_dict(orient="records")
    assert [str(row.pop("id")) for row in found] == [row["id"] for row in expected["places"]]
    assert len(found) == len(expected["places"])
    for row, wanted in zip(found, expected["places"], strict=True):
        assert row == pytest.approx({key: value for key, value in wanted.items() if key != "id"}, abs=1e-12)


@pytest.mark.parametrize("name", FILES)
def test_the_same_words_give_the_same_outputs(name):
    expected, mechanism = FILES[name], mdp.load(VECTORS / name)
    source = ListedWords(expected["seed"], map(int, expected["first_words"]))
    drawn = np.concatenate([mechanism.sample(point[None], source) for point in floats(expected["points"])])
    wanted = expected["draws"] if mechanism.has_outputs else floats(expected["draws"])
    assert np.array_equal(drawn, wanted)
    assert source.taken == expected["words_taken"]
    if mechanism.projection is not None:
        source = ListedWords(11)
        drawn = np.concatenate([mechanism.sample_lonlat(one[None], source) for one in floats(expected["lonlat"])])
        wanted = expected["lonlat_draws"] if mechanism.has_outputs else floats(expected["lonlat_draws"])
        assert np.array_equal(drawn, wanted)


@pytest.mark.parametrize("name", [name for name, one in FILES.items() if "probabilities" in one])
def test_probabilities(name):
    expected, mechanism = FILES[name], mdp.load(VECTORS / name)
    assert np.abs(mechanism.probabilities(floats(expected["points"])[:3]) - expected["probabilities"]).max() < 1e-12


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_have_these_verdicts(name):
    expected = FORGED[name]
    try:
        mechanism = mdp.load(VECTORS / name)
    except mdp.NotCertified:
        assert expected["verdict"] == "not certified"
    except mdp.InvalidInputError:
        assert expected["verdict"] == "refused"
    else:
        assert expected["verdict"] == "accepted"
        check_claim(mdp.certify(mechanism), expected)


def test_vectors_have_every_verdict_and_enough_of_them():
    verdicts = [one["verdict"] for one in FORGED.values()]
    assert {verdict: verdicts.count(verdict) >= 8 for verdict in set(verdicts)} == {
        "accepted": True, "not certified": True, "refused": True,
    }  # fmt: skip


class Attempt:
    """The words of one attempt, then further digits of u where they are asked for."""

    secure = False

    def __init__(self, attempt, further):
        self.attempt, self.further = attempt, further

    def words(self, count):
        taken, self.attempt = self.attempt, None
        if taken is None:
            if count > 1:
                raise LookupError("discarded")
            return np.array([self.further], dtype=np.uint64)
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize("case", vectors()["noise"], ids=lambda one: f"{one['rate']}-{one['p']}-{one['axes']}")
def test_noise_changes_where_exact_arithmetic_says(case):
    """On both sides of every listed boundary: the digits below it are inside, the next ones are not."""
    p, bits = float(case["p"]), case["bits"]
    noise = LatticeNoise(float.fromhex(case["rate"]), p, case["axes"])
    assert noise.proposal_rate == Fraction(*map(int, case["proposal"]))
    coin = [0] * (noise.words_per_attempt - case["axes"])
    for n, border in enumerate(map(int, case["magnitudes"]), 1):
        for digits, size in ((border - 1, n), (border + 2, n - 1)):
            first, further = divmod(digits << (127 - bits), 2**64)
            words = [2 * first, *[2**64 - 2] * (case["axes"] - 1), *coin]
            assert noise.draw(1, Attempt(words, further))[0, 0] == size
    ends = [2**bits, *map(int, case["magnitudes"])]
    for vector, border in case["coins"]:
        words = [(ends[n] - (ends[n] >> 30)) >> (bits - 63) << 1 for n in vector]
        for digits, kept in ((int(border) - 1, True), (int(border) + 2, False)):
            first, further = divmod(digits << (128 - bits), 2**64)
            try:
                drawn = noise.draw(1, Attempt([*words, first], further))[0].tolist()
            except LookupError:
                drawn = None
            assert drawn == (vector if kept else None)
