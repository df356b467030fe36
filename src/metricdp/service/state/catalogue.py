"""The mechanisms in service: loaded, proved private, and replaced when their files change."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from metricdp._validation import reject
from metricdp.certificates.proving import Certificate, require_proof
from metricdp.errors import InvalidInputError, NotCertified
from metricdp.files.reading import read_file
from metricdp.mechanisms.base import Mechanism
from metricdp.service.state.answers import Answers
from metricdp.service.state.map_answers import map_answer
from metricdp.service.state.watched_file import WatchedFile

__all__ = ["Catalogue", "Served"]

_LOG = logging.getLogger("metricdp.service")

# Points drawn to learn how fast a mechanism is.
_TRIAL_POINTS = 1000


@dataclass(frozen=True, eq=False)
class Served:
    """A mechanism in service. A request keeps the one that it began with, even if the file changes meanwhile.

    id : the file's name without its ending.
    certificate : the proof made when the file was loaded.
    loaded_at : when, as ISO 8601 text.
    seconds_per_point : time of a draw per point in a large batch.
    answers : what the service says of it, as JSON.
    """

    id: str
    path: Path
    mechanism: Mechanism
    sha256: str
    certificate: Certificate
    loaded_at: str
    seconds_per_point: float
    answers: Answers

    @cached_property
    def map_answer(self) -> bytes:
        """The answer to a request for the map of ε; made when it is first asked for."""
        return map_answer(self.id, self.mechanism, self.sha256)


class Catalogue:
    """Mechanisms by id.

    Parameters
    ----------
    files : sequence of Path
        The first is the default.
    one_distance : bool
        Refuse mechanisms with different p, whose budgets a ledger could not add up.
    on_load, on_failure : callable
        Called with every mechanism that was loaded, and with the id of every file that changed and cannot be served.

    Raises
    ------
    NotCertified, InvalidInputError, FileNotFoundError
        If a file cannot be served.
    """

    def __init__(
        self,
        files: Sequence[Path],
        *,
        one_distance: bool = False,
        on_load: Callable[[Served], None] = lambda _: None,
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._one_distance, self._on_load, self._on_failure = one_distance, on_load, on_failure
        self._reloading = asyncio.Lock()
        # Ids of mechanisms whose files changed into something that cannot be served.
        self.stale: set[str] = set()
        self._files: dict[str, WatchedFile] = {}
        self._served: dict[str, Served] = {}
        for path in files:
            name = _checked_id(path)
            if name in self._served:
                raise reject("files", "files of different names, which become the ids", f"two of the name {name!r}")
            self._files[name] = WatchedFile(path)
            self._served[name] = self._loaded(path)
            on_load(self._served[name])

    def served(self, name: str | None = None) -> Served:
        """Return the mechanism of an id, or the first one.

        Raises
        ------
        KeyError
            If there is none.
        """
        return next(iter(self._served.values())) if name is None else self._served[name]

    def all(self) -> list[Served]:
        """Return all mechanisms, the default first."""
        return list(self._served.values())

    async def watch(self, seconds: float) -> None:
        """Load changed files, looking every few seconds until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await self.reload()

    async def reload(self, *, unchanged: bool = False) -> None:
        """Load files that have changed, or all if `unchanged`; if one cannot be used, its old mechanism stays."""
        async with self._reloading:
            for name, old in list(self._served.items()):
                if self._files[name].changed() or unchanged:
                    await self._replace(old)

    async def _replace(self, old: Served) -> None:
        try:
            new = await asyncio.to_thread(self._loaded, old.path)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file, the old mechanism stays in service
            known = isinstance(error, (InvalidInputError, NotCertified, OSError))
            reason = str(error) if known else type(error).__name__
            _LOG.error("mechanism %s: its file changed and cannot be used, the old one stays: %s", old.id, reason)
            self.stale.add(old.id)
            self._on_failure(old.id)
            return
        self.stale.discard(old.id)
        if new.sha256 == old.sha256:
            return
        self._served[old.id] = new
        self._on_load(new)
        _LOG.info("mechanism %s: now ε = %g, sha256 %s", new.id, new.mechanism.epsilon, new.sha256)

    def _loaded(self, path: Path) -> Served:
        served = _load(path)
        others = [other for other in self._served.values() if other.id != served.id]
        if self._one_distance and others and others[0].mechanism.p != served.mechanism.p:
            # An ε per unit of one distance cannot be added to an ε per unit of another.
            rule = f"private with the same p = {others[0].mechanism.p:g} as the others that share the ledger"
            raise reject(str(path), rule, f"p = {served.mechanism.p:g}")
        return served


def _load(path: Path) -> Served:
    contents = read_file(path)
    mechanism = contents.mechanism
    with np.errstate(all="ignore"):  # numbers of a hostile file may overflow, and then the proof fails
        certificate = require_proof(mechanism, f"{os.fspath(path)!r} is not served", advice="")
    name, loaded_at = _checked_id(path), datetime.now(UTC).isoformat(timespec="seconds")
    return Served(
        id=name,
        path=path,
        mechanism=mechanism,
        sha256=contents.sha256,
        certificate=certificate,
        loaded_at=loaded_at,
        seconds_per_point=_pace(mechanism),
        answers=Answers.of(name, mechanism, contents.sha256, certificate, loaded_at),
    )


def _pace(mechanism: Mechanism) -> float:
    """Return seconds per point of a batch; the mechanism also prepares here what it needs for its first draw."""
    low, high = mechanism.bounds
    points = np.linspace(low, high, _TRIAL_POINTS)
    mechanism.sample(points[:1])
    started = time.perf_counter()
    mechanism.sample(points)
    return (time.perf_counter() - started) / _TRIAL_POINTS


def _checked_id(path: Path) -> str:
    name = path.stem
    if not name or not name.isprintable() or "/" in name:
        raise reject("files", "files with printable names, which become the ids", repr(name))
    return name
