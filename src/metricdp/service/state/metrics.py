"""Counts and times for Prometheus, never a place or a person."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from metricdp.service.state.catalogue import Served

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)


class Metrics:
    """The service's counters, in their own Prometheus registry, so that several services fit in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        where: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("metricdp_requests", "Requests answered.", ["method", "route", "status"], **where)
        self._seconds = Histogram("metricdp_request_seconds", "Time per request.", ["route"], buckets=_SECONDS, **where)
        self._points = Counter("metricdp_points", "Points perturbed.", ["mechanism"], **where)
        self._refused = Counter("metricdp_refused", "Points refused: budget spent.", ["mechanism"], **where)
        self._batch_requests = Histogram(
            "metricdp_ledger_batch_requests", "Requests per transaction of the ledger.", buckets=_SIZES, **where
        )
        self._batch_points = Histogram(
            "metricdp_ledger_batch_points", "Points per transaction of the ledger.", buckets=_SIZES, **where
        )
        self._mechanisms = Gauge(
            "metricdp_mechanism_info", "Mechanisms in service.", ["id", "method", "epsilon", "sha256"], **where
        )
        self._reloads = Counter("metricdp_reloads", "Mechanism files taken up, at the start and later.", **where)
        self._failures = Counter("metricdp_reload_failures", "Changed mechanism files that were not usable.", **where)
        self._shown: dict[str, tuple[str, str, str, str]] = {}
        self._drawn: dict[str, tuple[Counter, Counter]] = {}
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer. The labelled counters are kept, since looking them up takes longer than counting."""
        known = (method if method in _METHODS else "other", route, status)
        children = self._children.get(known)
        if children is None:
            labels = (known[0], route, str(status))
            children = self._children[known] = (self._requests.labels(*labels), self._seconds.labels(route))
        children[0].inc()
        children[1].observe(seconds)

    def perturbed(self, mechanism: str, points: int, refused: int) -> None:
        """Count the points of a request."""
        counters = self._drawn.get(mechanism)
        if counters is None:
            counters = self._drawn[mechanism] = self._points.labels(mechanism), self._refused.labels(mechanism)
        counters[0].inc(points)
        counters[1].inc(refused)

    def transaction(self, requests: int, points: int) -> None:
        """Count a transaction of the ledger."""
        self._batch_requests.observe(requests)
        self._batch_points.observe(points)

    def loaded(self, served: Served) -> None:
        """Show a mechanism, instead of the one that had its id before."""
        mechanism = served.mechanism
        labels = (served.id, mechanism.method, f"{mechanism.epsilon:g}", served.sha256)
        old = self._shown.get(served.id)
        if old is not None:
            self._mechanisms.remove(*old)
        self._shown[served.id] = labels
        self._mechanisms.labels(*labels).set(1)
        self._reloads.inc()

    def failed(self, _name: str) -> None:
        """Count a file that changed and could not be used."""
        self._failures.inc()

    def text(self) -> bytes:
        """Return all in Prometheus' text format."""
        return generate_latest(self.registry)
