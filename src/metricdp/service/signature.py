"""Whether a file has changed since somebody looked."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Signature", "signature"]

# Time of change, size, number of its place on the disk.
Signature = tuple[int, int, int]


def signature(path: Path) -> Signature | None:
    """Return what tells one state of a file from another, None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
