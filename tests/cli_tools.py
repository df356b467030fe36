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
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["metricdp", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    said = (stream.buffer.getvalue().decode() for stream in (out, err))
    return SimpleNamespace(returncode=code, **dict(zip(("stdout", "stderr"), said, strict=True)))
