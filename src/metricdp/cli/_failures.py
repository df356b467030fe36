"""How commands fail: in one line for people, or with `--json` in one document for programs, on stdout like any other.

docs/json.md describes the document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metricdp.cli._console import print_json
from metricdp.cli._signals import is_ending
from metricdp.errors import ADVICE, InvalidInputError, NotCertified, SolverError

__all__ = ["MENDABLE", "PROGRAM", "WRONG_INPUT", "in_words", "run_with_json_errors", "tell_stopped", "wants_json"]

# What usage lines and shell completion call the command, however it was started.
PROGRAM = "metricdp"

# Errors that a user can mend. All others are faults of the program and leave a traceback.
MENDABLE = (InvalidInputError, NotCertified, SolverError, OSError, ModuleNotFoundError)
WRONG_INPUT = 2

# The command line has no option to do without a proof.
_ADVICE = "Commands use proved mechanisms only; `metricdp audit` and `metricdp compare` study others."

# By exit code: who ended the command, and what to say of it.
_STOPPED = {130: ("Interrupted", "Stopped by Ctrl-C."), 143: ("Terminated", "Stopped by a signal.")}


def in_words(error: BaseException) -> str:
    """Return the message of an error in the words of the command line."""
    if isinstance(error, OSError) and error.strerror:
        # Without Python's "[Errno 2]".
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"
    return str(error).replace(ADVICE, _ADVICE)


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command is asked for JSON, even if its arguments turn out to be wrong."""
    return "--json" in arguments[: arguments.index("--") if "--" in arguments else None]


def run_with_json_errors(app: Callable[..., Any]) -> int:
    """Run the command line and return its exit code; errors become documents.

    What goes wrong after a signal goes wrong because of it, so it is not told: the end tells of the signal.
    """
    try:
        code = app(prog_name=PROGRAM, standalone_mode=False)
    except MENDABLE as error:
        if is_ending():
            raise
        return _failed(type(error).__name__, in_words(error), WRONG_INPUT, getattr(error, "certificate", None))
    except Exception as error:
        if is_ending():
            raise
        # Errors of usage come from click, or from the copy of it that newer versions of typer bring along.
        say = getattr(error, "format_message", None)
        if say is None:
            _failed("InternalError", f"{type(error).__name__}; a traceback is on stderr.", 1)
            raise
        return _failed("UsageError", say(), int(getattr(error, "exit_code", WRONG_INPUT)))
    return code if isinstance(code, int) else 0


def tell_stopped(exit_code: int) -> None:
    """Print the document of a command that a signal ends."""
    _failed(*_STOPPED[exit_code], exit_code)


def _failed(kind: str, message: str, exit_code: int, certificate: Any = None) -> int:
    """Print the document of an error; `certificate` has the pair that breaks a mechanism's claim."""
    found = {} if certificate is None else {"certificate": certificate.to_dict()}
    print_json({"error": {"type": kind, "message": message, "exit_code": exit_code, **found}})
    return exit_code
