"""The command line as a user runs it: as a real process, or in this one where a process shows nothing more."""

import contextlib
import io
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

from metricdp.cli import main


def run(*arguments, cwd):
    """Run `metricdp` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "metricdp", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )


def call(*arguments, cwd):
    """Run `metricdp` in this process, which saves its start; the answer is as that of `run`."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["metricdp", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        else:
            code = 0
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())
