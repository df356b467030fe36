import numpy as np
import pytest

from metricdp import InvalidInputError, Problem

RECORDS = [[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]
OUTPUTS = [[0.0, 0.0], [3.0, 3.0]]


def test_defaults():
    problem = Problem(RECORDS, OUTPUTS, "euclidean")
    assert problem.prior.tolist() == [1 / 3] * 3
    assert problem.bounds.tolist() == [[0.0, 0.0], [3.0, 2.0]]
    assert problem.p == 2.0
    assert problem.loss[1, 1] == pytest.approx(np.hypot(2, 1))


def test_losses():
    squared = Problem(RECORDS, OUTPUTS, "squared").loss
    assert squared == pytest.approx(Problem(RECORDS, OUTPUTS, "euclidean").loss ** 2)
    table = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(Problem(RECORDS, OUTPUTS, table).loss, table)
    assert np.array_equal(Problem(RECORDS, OUTPUTS, lambda x, y: x @ y.T).loss, np.array(RECORDS) @ np.array(OUTPUTS).T)


def test_floor_and_uniform_loss_are_weighted_by_the_prior():
    problem = Problem(RECORDS, OUTPUTS, [[1, 3], [5, 2], [0, 4]], prior=[1, 1, 2])
    assert problem.floor == pytest.approx((1 + 2 + 0) / 4)
    assert problem.uniform_loss == pytest.approx((2 + 3.5 + 2 * 2) / 4)


def test_huge_prior_weights_do_not_overflow():
    assert Problem(RECORDS, OUTPUTS, "euclidean", prior=[1e308, 1e308, 0]).prior.tolist() == [0.5, 0.5, 0.0]


def test_problems_are_immutable_and_keep_no_reference():
    records = np.array(RECORDS)
    problem = Problem(records, OUTPUTS, "euclidean")
    records[0, 0] = 99.0
    assert problem.records[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        problem.loss[0, 0] = 1.0
    with pytest.raises(AttributeError):
        problem.p = 1.0


def test_one_dimensional_data_may_be_flat_and_outputs_may_repeat():
    problem = Problem([0.0, 1.0, 2.0], [1.0, 1.0], "euclidean")
    assert (problem.n_axes, problem.n_outputs) == (1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"records": []}, "`records`"),
        ({"records": np.empty((0, 2))}, "`records` must be non-empty"),
        (
            {"records": [[0.0, np.nan], [1.0, 2.0], [3.0, 1.0]]},
            r"`records` must be finite everywhere, got nan at index \(0, 1\)",
        ),
        ({"records": [[0.0, np.inf], [1.0, 2.0], [3.0, 1.0]]}, "`records` must be finite"),
        ({"records": [["a", "b"]]}, "`records` must be an array of numbers"),
        ({"records": np.zeros((2, 2, 2))}, r"`records` must be an array of shape"),
        ({"outputs": [[0.0]]}, r"`outputs` must be an array of shape \(rows, 2\), got shape \(1, 1\)"),
        ({"outputs": [[0.0, np.nan]]}, "`outputs` must be finite"),
        ({"loss": "manhattan"}, "`loss` must be .*got 'manhattan'"),
        (
            {"loss": [[1.0, 2.0]]},
            r"`loss` must be of shape \(records, outputs\) = \(3, 2\), got shape \(1, 2\)",
        ),
        ({"loss": np.full((3, 2), np.nan)}, "`loss` must be finite"),
        ({"prior": [1.0, 1.0]}, r"`prior` must be of shape \(3,\)"),
        ({"prior": [1.0, -1.0, 1.0]}, "`prior` must be non-negative, got -1.0 at index 1"),
        ({"prior": [0.0, 0.0, 0.0]}, "`prior` must be positive somewhere, got zeros only"),
        ({"p": 0.5}, r"`p` must be a number in \[1, inf\] .*got 0.5"),
        ({"p": float("nan")}, "`p` must be"),
        ({"p": "two"}, "`p` must be"),
        (
            {"bounds": [[0.0, 0.0], [1.0, 1.0]]},
            "`bounds` must be a box that holds every record, got 1 records outside on axis 0",
        ),
        ({"bounds": [[0.0, 0.0], [3.0, 0.0]]}, "`bounds` must be wider than zero on every axis"),
        ({"bounds": [[0.0, 0.0]]}, r"`bounds` must be of shape \(2, 2\)"),
        ({"bounds": [[0.0, 0.0], [3.0, np.inf]]}, "`bounds` must be finite"),
    ],
)
def test_bad_input_names_parameter_rule_and_value(change, words):
    arguments = {"records": RECORDS, "outputs": OUTPUTS, "loss": "euclidean"} | change
    with pytest.raises(InvalidInputError, match=words):
        Problem(**arguments)


def test_a_flat_domain_asks_for_bounds():
    with pytest.raises(InvalidInputError, match="pass `bounds`"):
        Problem([[1.0, 0.0], [1.0, 5.0]], [[0.0, 0.0]], "euclidean")
    assert Problem([[1.0]], [[0.0]], "euclidean", bounds=[[0.0], [2.0]]).n_records == 1
