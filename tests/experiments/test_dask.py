"""What every use of a Dask cluster asks of it."""

import sys
from typing import ClassVar

import pytest

import metricdp as mdp
from metricdp import _dask
from metricdp.experiments.engine import cluster as experiments
from metricdp.experiments.engine.source import code_digest
from metricdp.perturb import folder

STARTS = {
    "cluster": lambda: folder._on_cluster(dict, [], "tcp://127.0.0.1:9"),
    "executor": lambda: experiments.run_on_cluster([], dict, None, address="127.0.0.1:9"),
}


class Client:
    """Workers that tell a version."""

    versions: ClassVar = {}

    def __init__(self, address, timeout):
        assert address == "tcp://127.0.0.1:9"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, function):
        if function is code_digest:
            return dict.fromkeys(self.versions, "other code")
        assert function() == mdp.__version__
        return self.versions


@pytest.mark.parametrize("parameter", STARTS)
def test_clusters_without_workers_or_of_another_version_are_refused(parameter, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    monkeypatch.setattr(distributed, "Client", Client)
    with pytest.raises(mdp.InvalidInputError, match=f"`{parameter}` must be the address of a cluster with workers"):
        list(STARTS[parameter]())
    monkeypatch.setattr(Client, "versions", {"tcp://a": mdp.__version__, "tcp://b": "0.0.0"})
    message = rf"`{parameter}` must be a cluster that runs metricdp {mdp.__version__}, got 0\.0\.0 on tcp://b"
    with pytest.raises(mdp.InvalidInputError, match=message):
        list(STARTS[parameter]())
    monkeypatch.setattr(Client, "versions", {"tcp://a": mdp.__version__})
    with _dask.connected("tcp://127.0.0.1:9", parameter) as client:
        assert isinstance(client, Client)


def test_experiments_refuse_workers_with_other_code(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(Client, "versions", {"tcp://a": mdp.__version__})
    with pytest.raises(mdp.InvalidInputError, match="The worker tcp://a has other source code of metricdp"):
        list(STARTS["executor"]())


@pytest.mark.parametrize("parameter", STARTS)
def test_what_to_install_is_said(parameter, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'metricdp\[cluster\]'"):
        list(STARTS[parameter]())
