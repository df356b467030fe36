"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to be written aside; it takes the place of `path` only if the block ends well."""
    target = Path(path)
    # Unlike `tempfile`, this leaves the file with the permissions that the user's umask gives to new files.
    aside = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    try:
        with aside.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
