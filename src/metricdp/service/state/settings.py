"""The settings of a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from metricdp._validation import integer, positive, reject
from metricdp.ledger.options import LedgerOptions

if TYPE_CHECKING:
    from metricdp.cities import RoadNetwork

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to serve, to whom, and how much at once.

    files : mechanism files; the first is the default.
    ledger : keep budgets per person in this ledger.
    keys : file of API keys (`metricdp keys`); without one, every caller is served.
    page : serve the page too, which needs `probabilities`.
    probabilities : answer POST /v1/probabilities.
    city : road network that the page draws.
    tiles : address of map tiles with {z}, {x} and {y}, for the page.
    cors : origins of other pages that may call the service from a browser.
    hosts : names under which the service may be called (header `Host`); any if empty.
    open : let other machines call the service although it has no keys.
    requests_per_second, points_per_second : limits of keys that have none of their own; without keys, of all callers
        together.
    max_points : most points of one request.
    max_body_bytes : largest body of a request.
    max_held_bytes : most bytes of all request bodies in memory at once.
    max_waiting_points : most points that may wait for the ledger.
    body_seconds, header_seconds : how long a client may take to send the body and the headers of a request.
    read_seconds : how long a client may take to read its answer.
    max_connections : open connections; more are turned away.
    shutdown_seconds : how long requests under way may take when the service is told to stop.
    poll_seconds : how often files are looked at for changes.
    access_log, json_logs : write one line per request; as JSON.
    """

    files: tuple[Path, ...]
    ledger: LedgerOptions | None = None
    keys: Path | None = None
    page: bool = False
    probabilities: bool = False
    city: RoadNetwork | None = None
    tiles: str | None = None
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    open: bool = False
    requests_per_second: int | None = None
    points_per_second: int | None = None
    max_points: int = 100_000
    max_body_bytes: int = 16_000_000
    max_held_bytes: int = 256_000_000
    max_waiting_points: int = 1_000_000
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    read_seconds: float = 60.0
    max_connections: int = 1000
    shutdown_seconds: int = 20
    poll_seconds: float = 1.0
    access_log: bool = True
    json_logs: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(Path(file) for file in self.files))
        if not self.files:
            raise reject("files", "at least one mechanism file", "none")
        for name in (
            "max_points",
            "max_body_bytes",
            "max_held_bytes",
            "max_waiting_points",
            "max_connections",
            "shutdown_seconds",
        ):
            integer(name, getattr(self, name), 1)
        for name in ("requests_per_second", "points_per_second"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), 1)
        for name in ("body_seconds", "header_seconds", "read_seconds", "poll_seconds"):
            positive(name, getattr(self, name))
        for origin in self.cors:
            _check_origin(origin)
        if self.tiles is not None:
            _check_tiles(self.tiles)
        # The page shows probabilities.
        object.__setattr__(self, "probabilities", self.probabilities or self.page)

    @property
    def tile_origin(self) -> str | None:
        """The origin of map tiles, as the header Content-Security-Policy names it."""
        if self.tiles is None:
            return None
        parts = urlsplit(self.tiles)
        return f"{parts.scheme}://{parts.netloc.replace('{s}', '*')}"


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        # "*" would let every page that somebody visits call the service from their browser.
        raise reject("cors", "an origin such as https://example.org", repr(origin))


def _check_tiles(template: str) -> None:
    parts = urlsplit(template)
    whole = all(mark in template for mark in ("{z}", "{x}", "{y}"))
    # The origin becomes a part of the header Content-Security-Policy, in which these characters have a meaning.
    if parts.scheme not in ("http", "https") or not parts.netloc or not whole or set(template) & set("; ,'\"\r\n"):
        raise reject("tiles", "an address such as https://tiles.example.org/{z}/{x}/{y}.png", repr(template))
