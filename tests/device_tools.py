"""What the tests of the JavaScript package share: Node, verdicts of both languages, a server for a browser."""

import functools
import json
import math
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import metricdp as mdp
from metricdp.certificates import search
from metricdp.mechanisms.spline import proof as spline_proof

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "js"
VECTORS = Path(__file__).parent / "vectors"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node 20 or newer on the path")


def vectors():
    return json.loads((VECTORS / "vectors.json").read_text())


def run_node(*arguments, stdin=None):
    """Run Node in the package's folder and return what it printed."""
    command = [NODE, *map(str, arguments)]
    done = subprocess.run(command, cwd=PACKAGE, input=stdin, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def javascript_verdicts(paths):
    """Return what JavaScript makes of each file."""
    lines = run_node("test/verdicts.mjs", stdin="".join(f"{path}\n" for path in paths))
    return [json.loads(line) for line in lines.splitlines()]


def python_verdicts(paths, monkeypatch):
    """Return what Python makes of each file, without the search for pairs that show it, which changes no verdict."""
    for module in (search, spline_proof):
        monkeypatch.setattr(module, "steepest_pair", lambda *_: (math.nan, {}, 0))
    return [_verdict(path) for path in paths]


def _verdict(path):
    try:
        certificate = mdp.certify(mdp.load(path))
    except mdp.NotCertified as error:
        return {"verdict": "not certified", "claim": error.certificate.claim}
    except mdp.InvalidInputError:
        return {"verdict": "refused"}
    metres, paths = certificate.metres, certificate.paths
    return {
        "verdict": "accepted",
        "claim": certificate.claim,
        "metres": metres and metres.statement,
        "paths": paths and paths.statement,
    }


@contextmanager
def served(folder):
    """Serve a folder from a free port of this machine and yield its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
