"""What a shell is offered when Tab is pressed, asked as shells ask: by environment variables."""

import pytest

import metricdp as mdp
from cli_tools import call, run


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """Return a function that says what bash would offer for the last of some words."""

    def ask(words, answer=call):
        monkeypatch.setenv("_METRICDP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["metricdp", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        found = answer(cwd=tmp_path)
        assert found.stderr == ""
        return found.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["fit", "--method", ""], list(mdp.METHODS)),
        (["fit", "--method", "aipo"], ["aipo", "aipo-e", "aipo-r"]),
        (["fit", "--p", ""], ["1", "2", "inf"]),
        (["fit", "--solver", "h"], ["highs"]),
        (["compare", "--methods", "em,tem,lapl"], ["em,tem,laplace", "em,tem,laplace-remap"]),
        (["compare", "--methods", "em,my"], ["em,my.mdp"]),
        (["perturb", "m.mdp", "a.csv", "b.csv", "--coordinates", ""], ["lonlat", "projected"]),
        (["perturb", "m.mdp", "a.csv", "b.csv", "--outside", ""], ["clamp", "drop", "error"]),
        (["perturb", "m.mdp", "a.csv", "b.csv", "--beyond", "re"], ["refuse", "repeat-last"]),
        (["reproduce", "v"], ["violation"]),
        (["keys", "re"], ["revoke"]),
        (["per"], ["perturb"]),
    ],
)
def test_values_of_options_and_arguments(tmp_path, offered, words, values):
    (tmp_path / "my.mdp").touch()
    assert offered(words) == values


@pytest.mark.parametrize("words", [["fit", "--city", ""], ["cities", "info", ""], ["serve", "--city", ""]])
def test_cities_are_those_that_can_be_loaded(offered, words):
    assert offered(words) == mdp.cities.available()


def test_a_process_started_as_a_module_answers_to_the_name_of_the_command(offered):
    assert offered(["fit", "--p", "i"], run) == ["inf"]
