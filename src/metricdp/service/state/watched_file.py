"""Noticing that a file has changed, without reading it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["WatchedFile"]


class WatchedFile:
    """A file whose changes are noticed by its time of change, size and inode, or by its absence.

    Look (`WatchedFile(path)` or `changed`) before reading the file, never after: a change that happens in between is
    then noticed at the next look, and the file is read once more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = _signature(path)

    def changed(self) -> bool:
        """Return whether the file differs from what it was at the last look."""
        before, self._seen = self._seen, _signature(self.path)
        return before != self._seen


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
