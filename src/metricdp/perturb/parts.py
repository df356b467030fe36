"""What an unfinished job keeps in a hidden folder beside its output, so that it can go on after a kill.

The true coordinates are never in it, unless the output is to have them too. But the lengths of parts depend on the
bytes of the input, those of coordinates included, as the lengths of the output's chunks do not. So nobody but the
owner may read the folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from metricdp._atomic import atomic_file
from metricdp.errors import InvalidInputError
from metricdp.perturb.summary import Counts

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["JobFolder", "Parts", "read_part", "sync"]

_JOB, _LOCK, _DRAFT, _COUNTS = "job.json", "lock", "draft", b"metricdp"


class JobFolder:
    """The folder of one job: it says what the job is, and lets one process at a time work on it.

    Nobody but the user who runs the job may read or write it. A folder that somebody else has made, or a link, is
    refused: its files would be removed, or taken for what was drawn.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[bytes] | None = None

    def exists(self) -> bool:
        """Whether there is an unfinished run."""
        return os.path.lexists(self.folder)

    def begin(self, job: dict[str, Any]) -> None:
        """Start with an empty folder; `job` says what is done to what."""
        try:
            self.folder.mkdir(mode=0o700)
        except FileExistsError:
            _require_own(self.folder)
        self._hold()
        for path in self.folder.iterdir():
            if path.name != _LOCK:
                path.unlink()
        with atomic_file(self.folder / _JOB) as stream:
            stream.write(json.dumps(job, indent=1).encode())
        sync(self.folder)

    def reopen(self, job: dict[str, Any]) -> None:
        """Go on with what is there if it belongs to the same job.

        Raises
        ------
        InvalidInputError
            If the input, the mechanism or the options have changed.
        """
        _require_own(self.folder)
        self._hold()
        try:
            earlier = json.loads((self.folder / _JOB).read_bytes())
        except FileNotFoundError:
            # The earlier run was killed before it could write what it was.
            self.begin(job)
            return
        except (OSError, ValueError):
            earlier = {}
        if changed := [name for name, value in job.items() if earlier.get(name) != value]:
            self.release()
            msg = (
                f"The unfinished run in {self.folder} differs in its {', '.join(changed)}; give `resume` the same "
                "input, mechanism and options, or remove that folder to start anew."
            )
            raise InvalidInputError(msg)

    def discard(self) -> None:
        """Remove the folder. It is renamed first: what a kill leaves of it must not pass for the parts of a job."""
        aside = self.folder.with_name(self.folder.name + ".old")
        if aside.is_symlink() or aside.is_file():
            aside.unlink()
        shutil.rmtree(aside, ignore_errors=True)
        self.folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Let another run have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _hold(self) -> None:
        """Keep other runs out for as long as this process lives."""
        if self._lock is not None:
            return
        self._lock = (self.folder / _LOCK).open("ab")
        try:
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock before may have removed the folder just now.
            free = self.folder.exists()
        except BlockingIOError:
            free = False
        if not free:
            self.release()
            msg = f"Another run is writing the output that {self.folder} belongs to; wait until it ends."
            raise InvalidInputError(msg)


def _require_own(folder: Path) -> None:
    """Refuse anything but a folder that belongs to this user and that nobody else can open."""
    found = folder.lstat()
    own = not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)
    if not (stat.S_ISDIR(found.st_mode) and own):
        msg = f"{folder} is not a folder of this user's alone, so no earlier run of this user has made it; remove it."
        raise InvalidInputError(msg)


class Parts(JobFolder):
    """What a job has drawn so far, in parts that are on disk.

    A part gets its name after its last byte has reached the disk, so a kill never leaves half of one. Parts are
    numbered without gaps, so their rows are the first rows of the input.
    """

    def __init__(self, target: Path) -> None:
        super().__init__(target.parent / f".{target.name}.parts")
        self.target = target
        self._count = 0

    @property
    def draft(self) -> Path:
        """Where the output is written before it takes its place."""
        return self.folder / _DRAFT

    def stored(self) -> list[tuple[Path, Counts]]:
        """Return the parts on disk, with the counts of their rows."""
        found: list[tuple[Path, Counts]] = []
        while (path := self._part(len(found))).exists():
            found.append((path, _read_counts(path)))
        self._count = len(found)
        return found

    def store(self, table: pa.Table, counts: Counts) -> None:
        """Write one more part, and wait until it has reached the disk."""
        note = {_COUNTS: json.dumps(dataclasses.asdict(counts)).encode()}
        schema = table.schema.with_metadata(note)
        with atomic_file(self._part(self._count)) as stream, pa.ipc.new_file(stream, schema) as writer:
            writer.write_table(table.replace_schema_metadata(note))
        self._count += 1

    def publish(self) -> None:
        """Give the draft the output's name once it has reached the disk, and remove the parts."""
        sync(self.draft)
        self.draft.replace(self.target)
        sync(self.target.parent)
        self.discard()

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.arrow"


def read_part(path: Path) -> pa.Table:
    """Return the rows of a part."""
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all().replace_schema_metadata(None)


def _read_counts(path: Path) -> Counts:
    try:
        with pa.OSFile(str(path)) as file:
            return Counts(**json.loads(pa.ipc.open_file(file).schema.metadata[_COUNTS]))
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        msg = f"The part {path} of an earlier run is damaged; start anew with `overwrite`."
        raise InvalidInputError(msg) from None


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
