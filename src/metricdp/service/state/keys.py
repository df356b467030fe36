"""API keys: made once, kept as hashes, read again when their file changes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metricdp._atomic import atomic_file
from metricdp._validation import integer, reject
from metricdp.errors import InvalidInputError
from metricdp.service.state.watched_file import WatchedFile

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Key", "KeyRing", "add_key", "read_keys", "revoke_key"]

_LOG = logging.getLogger("metricdp.service")

_FORMAT = 1
_PREFIX = "mdp_"
_LARGEST_FILE = 16_000_000
_LONGEST_NAME = 64
_SKEW, _MOST_SKEW = "clock_skew_seconds", 86_400

# For so long a revocation may go unnoticed.
_CHECK_SECONDS = 0.5


@dataclass(frozen=True)
class Key:
    """What the file keeps of a key: everything but its text.

    name : for logs and people.
    sha256 : of the key's text. The text holds 256 random bits, which nobody can guess or find in a table, so a fast
        hash without salt is enough; slow hashes are for passwords.
    created, revoked : when, as ISO 8601 text.
    requests_per_second, points_per_second : limits; the service's own if None.
    clock_skew_seconds : by how much the times that come with the key may differ from the service's clock; None if the
        key may not say when points were.
    """

    name: str
    sha256: str
    created: str
    requests_per_second: int | None = None
    points_per_second: int | None = None
    revoked: str | None = None
    clock_skew_seconds: int | None = None


class KeyRing:
    """The keys of a file, which is read again at most half a second after it has changed.

    A file that is missing or damaged may hide a revocation, so no key is accepted until it can be read again.
    """

    def __init__(self, path: Path) -> None:
        self.readable = True
        self._file = WatchedFile(path)
        self._keys = _by_hash(read_keys(path))
        self._checked = time.monotonic()

    def find(self, text: str) -> Key | None:
        """Return the key of this text, or None if there is none or it was revoked.

        Keys are looked up by their hash, so the time that it takes does not tell how close a guess was.
        """
        self.refresh()
        key = self._keys.get(_hash(text)) if self.readable else None
        return None if key is None or key.revoked is not None else key

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read the file again if it has changed; return whether it can be read."""
        now = time.monotonic()
        if now - self._checked < _CHECK_SECONDS and not at_once:
            return self.readable
        self._checked = now
        if self._file.changed():
            try:
                self._keys, self.readable = _by_hash(read_keys(self._file.path)), True
            except (InvalidInputError, OSError) as error:
                self.readable = False
                _LOG.error("the file of keys cannot be read, so no key is accepted: %s", type(error).__name__)
        return self.readable


def add_key(
    path: Path,
    name: str,
    *,
    requests_per_second: int | None = None,
    points_per_second: int | None = None,
    clock_skew_seconds: int | None = None,
) -> str:
    """Add a key to a file, which only its owner may read (0600), and return the key's text, which is stored nowhere."""
    if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise reject("name", f"1 to {_LONGEST_NAME} printable letters", repr(name))
    for option, value in (("requests_per_second", requests_per_second), ("points_per_second", points_per_second)):
        if value is not None:
            integer(option, value, 1)
    if clock_skew_seconds is not None and not 1 <= integer("clock_skew_seconds", clock_skew_seconds, 1) <= _MOST_SKEW:
        raise reject("clock_skew_seconds", f"at most {_MOST_SKEW}, a day", clock_skew_seconds)
    text = _PREFIX + secrets.token_urlsafe(32)
    with _alone(path):
        keys = read_keys(path) if path.exists() else []
        if any(key.name == name for key in keys):
            msg = f"There is a key with the name {name!r} already, perhaps a revoked one; `name` must be new."
            raise InvalidInputError(msg)
        added = Key(name, _hash(text), _now(), requests_per_second, points_per_second, None, clock_skew_seconds)
        _write(path, [*keys, added])
    return text


def revoke_key(path: Path, name: str) -> Key:
    """Mark a key as revoked. It stays in the file, so that no other key gets its name."""
    with _alone(path):
        keys = read_keys(path)
        found = next((key for key in keys if key.name == name), None)
        if found is None:
            raise reject("name", "the name of a key", repr(name))
        revoked = found if found.revoked is not None else replace(found, revoked=_now())
        _write(path, [revoked if key is found else key for key in keys])
    return revoked


def read_keys(path: Path) -> list[Key]:
    """Read a keys file.

    Raises
    ------
    InvalidInputError
        If the file was not made by `add_key`; the message quotes nothing of what it holds.
    """
    if path.stat().st_size > _LARGEST_FILE:
        msg = f"The keys file {os.fspath(path)!r} is larger than {_LARGEST_FILE:,} bytes."
        raise InvalidInputError(msg)
    try:
        contents = json.loads(path.read_bytes())
        found = contents["format"]
        keys = [_checked(entry) for entry in contents["keys"]] if found == _FORMAT else []
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        # Not `from error`: its message may quote the file.
        msg = f"{os.fspath(path)!r} is not a keys file made by `metricdp keys`: {type(error).__name__}."
        raise InvalidInputError(msg) from None
    if found != _FORMAT:
        number = found if isinstance(found, int) else "other than a number"
        msg = f"The keys file {os.fspath(path)!r} has format {number}; this version reads format {_FORMAT}."
        raise InvalidInputError(msg)
    if len({key.name for key in keys}) < len(keys):
        msg = f"The keys file {os.fspath(path)!r} has two keys of the same name."
        raise InvalidInputError(msg)
    return keys


def _checked(entry: Mapping[str, Any]) -> Key:
    """Return the key of an entry; raise ValueError or TypeError if it is none."""
    key = Key(**entry)
    hexadecimal = isinstance(key.sha256, str) and len(key.sha256) == 64 and set(key.sha256) <= set("0123456789abcdef")
    texts = isinstance(key.name, str) and isinstance(key.created, str) and isinstance(key.revoked, (str, type(None)))
    if not (hexadecimal and texts and key.name.isprintable()):
        raise ValueError
    for limit in (key.requests_per_second, key.points_per_second, key.clock_skew_seconds):
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise ValueError
    if key.clock_skew_seconds is not None and key.clock_skew_seconds > _MOST_SKEW:
        raise ValueError
    return key


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the file against other writers: without that, adding a key could undo a revocation made meanwhile."""
    if fcntl is None:
        yield
        return
    # The lock is on the folder, since writing replaces the file.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path: Path, keys: list[Key]) -> None:
    text = json.dumps({"format": _FORMAT, "keys": [_entry(key) for key in keys]}, indent=1) + "\n"
    with atomic_file(path, private=True) as stream:
        stream.write(text.encode())


def _entry(key: Key) -> dict[str, Any]:
    """Return a key as the file holds it; earlier versions know no skew, and read files in which no key has one."""
    entry = asdict(key)
    return entry if key.clock_skew_seconds is not None else {n: v for n, v in entry.items() if n != _SKEW}


def _by_hash(keys: list[Key]) -> dict[str, Key]:
    return {key.sha256: key for key in keys}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
