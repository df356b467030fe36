"""Files at URLs, through fsspec: what may be said of them, and how they are read and written whole."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from metricdp.errors import InvalidInputError

__all__ = ["describe_url", "exists_url", "file_name", "is_url", "located", "open_url", "shown", "whole_url"]

# At least two letters before the colon: one letter is a drive of Windows.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_HARMLESS_NAME = re.compile(r"[\w.\-= ]+\.\w+")


def is_url(path: str | Path) -> bool:
    """Whether a text is the URL of a file that is not on this machine's disk."""
    return isinstance(path, str) and _URL.match(path) is not None


def located(path: str | Path) -> str | Path:
    """Return the path that a `file://` URL stands for; anything else as it is.

    fsspec calls the disk `local://`, too. Through it a file would pass by all that is checked of files on the disk.
    """
    if not (isinstance(path, str) and path.casefold().startswith(("file://", "local://"))):
        return path
    parts = urlsplit(path)
    if parts.netloc not in ("", "localhost"):
        msg = "A file:// URL has three slashes before the path: file:///folder/points.csv."
        raise InvalidInputError(msg)
    return Path(url2pathname(parts.path))


def file_name(path: str | Path) -> str:
    """Return what a file's ending is looked for in: of a URL, the path without query and fragment."""
    return re.split(r"[?#]", str(path), maxsplit=1)[0] if is_url(path) else str(path)


def shown(path: str | Path) -> str:
    """Return a path for messages; of a URL only scheme and file name, as the rest may hold credentials.

    Examples
    --------
    >>> shown("https://ann:secret@example.org/token/points.csv?signature=abc")
    'https://…/points.csv'
    """
    if not is_url(path):
        return str(path)
    scheme, _, rest = str(path).partition("://")
    # A password may contain any sign, so what counts is what follows the last "@".
    name = file_name(f"{scheme}://{rest.rpartition('@')[2]}").rpartition("/")[2]
    return f"{scheme}://…/{name}" if _HARMLESS_NAME.fullmatch(name) else f"{scheme}://…"


def open_url(url: str) -> RemoteFile:
    """Open the file at a URL for reading."""
    with _translated(url):
        system, path = _filesystem(url)
        return RemoteFile(system.open(path, "rb"), url)


def describe_url(url: str) -> list[Any]:
    """Return what tells a file from another, or from a later version of itself."""
    with _translated(url):
        system, path = _filesystem(url)
        found = system.info(path)
        # What a store says of a file differs; all that is there and changes with the file is used.
        marks = {key: str(found[key]) for key in ("size", "ETag", "etag", "LastModified", "mtime") if key in found}
        return [shown(url), marks]


def exists_url(url: str) -> bool:
    """Whether there is a file at a URL."""
    with _translated(url):
        system, path = _filesystem(url)
        return bool(system.exists(path))


@contextmanager
def whole_url(url: str) -> Iterator[RemoteFile]:
    """Open a file to be written to a URL; it appears there only if the block ends well."""
    with _translated(url):
        if url.casefold().startswith(("http://", "https://")):
            raise NotImplementedError
        system, path = _filesystem(url)
        transaction = system.transaction
        transaction.__enter__()
    failed: type[BaseException] | None = InvalidInputError
    try:
        with _translated(url):
            opened = system.open(path, "wb")
        _require_undo(transaction, opened, url)
        with RemoteFile(opened, url) as file:
            yield file
        failed = None
    finally:
        with _translated(url):
            transaction.__exit__(failed, None, None)


class RemoteFile(io.RawIOBase):
    """A file of fsspec's whose errors tell no URL."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url
        self.size = getattr(file, "size", None)

    def readable(self) -> bool:
        """Whether it can be read."""
        return bool(self._file.readable())

    def writable(self) -> bool:
        """Whether it can be written."""
        return bool(self._file.writable())

    def seekable(self) -> bool:
        """Whether it can be read from any place."""
        return bool(self._file.seekable())

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, fewer at the end."""
        with _translated(self._url):
            return bytes(self._file.read(-1 if size is None else size))

    def write(self, content: Any) -> int:
        """Write some bytes."""
        with _translated(self._url):
            return int(self._file.write(bytes(content)))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        with _translated(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """Return the place."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            with _translated(self._url):
                self._file.close()


def _filesystem(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0]
    if "::" in url:
        # A chain of file systems may keep a copy of the points on the disk.
        msg = f"{shown(url)} chains file systems with '::', which is not supported; give the file's own URL."
        raise InvalidInputError(msg)
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - most users need no URLs
        from fsspec.registry import known_implementations  # noqa: PLC0415
    except ImportError:
        msg = f"{shown(url)} is read through fsspec, which is not installed: pip install 'metricdp[remote]'."
        raise InvalidInputError(msg) from None
    try:
        # No cache of directories or instances: what is at a URL may change, and a transaction is one job's.
        system, path = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        known = known_implementations.get(scheme, {}).get("err", "install its package for fsspec")
        msg = f"{scheme}:// needs a package that is not installed ({error.name or 'for fsspec'}): {known}."
        raise InvalidInputError(msg) from None
    except ValueError:
        msg = f"{shown(url)} has a scheme that fsspec does not know, or is no URL."
        raise InvalidInputError(msg) from None
    return system, path


def _require_undo(transaction: Any, opened: Any, url: str) -> None:
    """Refuse file systems on which a half-written file could stay."""
    if not any(file is opened for file in transaction.files) or not hasattr(opened, "discard"):
        opened.close()
        msg = f"{shown(url)} cannot be written whole or not at all; write to the disk and copy the file there."
        raise InvalidInputError(msg)


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Replace errors of file systems, which may quote the URL, by ones that do not."""
    try:
        yield
    except InvalidInputError:
        raise
    except NotImplementedError:
        msg = f"Files at {url.partition('://')[0]}:// can be read, but not written; choose another place."
        raise InvalidInputError(msg) from None
    except Exception as error:  # noqa: BLE001 - every file system has errors of its own, and all may quote the URL
        known = {"FileNotFoundError": errno.ENOENT, "PermissionError": errno.EACCES}
        number = known.get(type(error).__name__) or getattr(error, "errno", None) or errno.EIO
        raise OSError(number, f"{os.strerror(number)} ({type(error).__name__})", shown(url)) from None
