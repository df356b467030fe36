"""The rooms and what they may not know, read off the imports."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "metricdp"
FORBIDDEN = {
    "metric.py": {"solvers", "files", "cities", "mechanisms", "methods"},
    "grid.py": {"solvers", "files", "cities", "mechanisms", "methods"},
    "splines.py": {"solvers", "files", "cities", "mechanisms", "methods"},
    "problem.py": {"solvers", "files", "cities", "mechanisms", "methods"},
    "programs": {"solvers", "mechanisms", "methods", "files", "cities"},
    "solvers": {"mechanisms", "methods", "files", "cities", "problem"},
    "mechanisms": {"programs", "solvers", "methods", "cities"},
    "proofs": {"programs", "solvers", "methods", "cities", "repair"},
    "certify.py": {"programs", "solvers", "methods", "cities", "repair"},
    "audit.py": {"programs", "solvers", "methods", "cities"},
    "_draws.py": {"programs", "solvers", "methods", "cities"},
    "sampler_check.py": {"programs", "solvers", "methods", "cities"},
    "black_box.py": {"programs", "solvers", "methods", "cities"},
    "ledger.py": {"programs", "solvers", "methods", "cities", "fit", "cli"},
    "_ledger_file.py": {"programs", "solvers", "methods", "cities", "fit", "cli", "files", "ledger"},
    "_ledger_batch.py": {"programs", "solvers", "methods", "cities", "fit", "cli", "files", "mechanisms", "ledger"},
    "perturb": {"programs", "solvers", "methods", "cities", "fit", "cli", "evaluate", "reproduce", "problem"},
    "cities": {"programs", "solvers", "methods", "mechanisms", "files"},
    "service": {"programs", "solvers", "methods", "fit", "cli", "evaluate", "reproduce", "problem"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("metricdp"):
            yield node.module.split(".")[1:] or [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("metricdp."):
                    yield alias.name.split(".")[1:]


@pytest.mark.parametrize("room", FORBIDDEN)
def test_nothing_downstream_is_imported_upstream(room):
    place = SOURCE / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    known = {
        (path.relative_to(SOURCE).as_posix(), names[0])
        for path in files
        for names in imports(path)
        if names[0] in FORBIDDEN[room]
    }
    # A mechanism saves itself; the import happens when it does. The service's demo fits mechanisms, once.
    allowed = {("mechanisms/base.py", "files"), ("service/demo.py", "fit"), ("service/demo.py", "problem")}
    assert known <= allowed
