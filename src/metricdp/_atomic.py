"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file", "atomic_folder", "remove_unfinished"]

# Files and folders that are being written aside.
_unfinished: set[Path] = set()


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file to be written aside; it takes the place of `path` only if the block ends well.

    A new file has the permissions that the user's umask gives, and one that replaces another has that one's. With
    `private` only the owner may read and write it. At no time can somebody open it who may not do so at the end.
    """
    target = Path(path)
    mode = 0o600 if private else _mode(target)
    # Not `tempfile`, whose files are always private and would stay so.
    aside = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, 0o666 if mode is None else mode)

    _unfinished.add(aside)
    try:
        with open(aside, "xb", opener=create) as stream:
            yield stream
            stream.flush()
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(stream.fileno(), mode)  # gives back what the umask took
            os.fsync(stream.fileno())
        aside.replace(target)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(aside):
            error.filename = str(target)  # the name that the caller knows
        raise
    finally:
        _unfinished.discard(aside)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder aside; it becomes the new folder `path` only if the block ends well."""
    target = Path(path)
    aside = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    _unfinished.add(aside)
    try:
        aside.mkdir()
        yield aside
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        _unfinished.discard(aside)


def remove_unfinished() -> None:
    """Remove what is being written aside, before this process ends without leaving its blocks."""
    for aside in list(_unfinished):
        with suppress(OSError):
            if aside.is_dir():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    """Return the permissions of a file, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return stat.S_IMODE(status.st_mode) & 0o777 if stat.S_ISREG(status.st_mode) else None
