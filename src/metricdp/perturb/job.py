"""A file of points in, a file of outputs out: bounded memory, whole or not at all, able to go on after a kill."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Generic, TypeVar

import pyarrow as pa

from metricdp._atomic import atomic_file
from metricdp._log import LOG
from metricdp._progress import TellRows, told_rows
from metricdp._validation import FloatArray, reject
from metricdp.errors import InvalidInputError
from metricdp.files.reading import content_hash
from metricdp.ledger.budgets import Ledger
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb import limits
from metricdp.perturb.chunks import rechunked
from metricdp.perturb.copying import suspicion, value_type
from metricdp.perturb.formats import STANDARD, Sink, SinkKind, Source, open_source, sink_kind
from metricdp.perturb.kernel import LATE, Perturbation
from metricdp.perturb.options import Options
from metricdp.perturb.parts import Parts, read_part
from metricdp.perturb.remote import describe_url, exists_url, is_url, located, shown, whole_url
from metricdp.perturb.summary import Counts, Summary, Warn, Watch, python_warning

__all__ = ["Job", "ahead", "perturb_file"]

Drawn = tuple[pa.Table, Counts]
T = TypeVar("T")

# Seconds after which a thread that waits to hand over an item looks whether anybody still wants it.
_PATIENCE = 0.1


class Job:
    """An open source, and what is to be done to its rows."""

    def __init__(
        self, mechanism: Mechanism, source: Source, kind: SinkKind, options: Options, ledger: Ledger | None = None
    ) -> None:
        if kind.format.needs_plane and mechanism.bounds.shape[1] != 2:
            raise reject("target", "without geometries for a mechanism of other than two axes", kind.format.suffixes[0])
        self.source, self.kind = source, kind
        self.perturbation = Perturbation.of(
            mechanism,
            source.schema,
            options,
            as_geometry=kind.format.geometries,
            sampler=None if ledger is None else _charged(ledger, mechanism),
        )
        self.points = self.perturbation.columns.names
        _require_times(options, ledger)
        wanted = dict.fromkeys((*self.perturbation.copy, *options.charged))
        self.others = tuple(name for name in wanted if name not in self.points)
        self.given = source.selected(self.points, self.others)
        self.schema = self.perturbation.schema(self.given)
        self.written = self._with_dictionaries() if kind.format.keeps_dictionaries else self.schema

    def drawn(self, skip: int = 0) -> Generator[Drawn, None, None]:
        """Yield parts of what is drawn for the rows after the first `skip`; threads read and draw the next ones."""
        return ahead(self._grouped(skip), depth=1)

    def write(self, stream: pa.NativeFile, drawn: Iterator[Drawn], report: Callable[[Counts], None]) -> None:
        """Write parts to a file of outputs; `report` is called with the counts of each."""

        def placed() -> Iterator[pa.RecordBatch]:
            for table, counts in drawn:
                yield from map(self.perturbation.place, table.to_batches())
                report(counts)

        sink = self._sink(stream)
        try:
            # Parts end where the input's batches do, which depends on its bytes; so they are cut anew.
            for table in rechunked(placed(), self.schema, self.kind.format.rows_at_once):
                sink.write(table if self.written is self.schema else table.cast(self.written))
            sink.close()
        except BaseException:
            sink.abandon()
            raise

    def _sink(self, stream: pa.NativeFile) -> Sink:
        try:
            return self.kind(stream, self.written)
        except pa.ArrowNotImplementedError:
            types = ", ".join(sorted({str(self.schema.field(name).type) for name in self.perturbation.copy}))
        raise reject("copy", f"columns of types that {self.kind.format.suffixes[0]} files can hold", types)

    def _with_dictionaries(self) -> pa.Schema:
        """Return the schema with copied texts as the input has them: dictionaries, or texts with wide offsets."""
        kept = {
            name: kind for name in self.perturbation.copy if (kind := _kept(self.source.file_type(name))) is not None
        }
        fields = [field.with_type(kept[field.name]) if field.name in kept else field for field in self.schema]
        return pa.schema(fields, self.schema.metadata) if kept else self.schema

    def _grouped(self, skip: int) -> Generator[Drawn, None, None]:
        held: list[pa.RecordBatch] = []
        counts = Counts()
        schema = self.perturbation.drawn_schema(self.given)
        with closing(ahead(self.source.batches(self.points, self.others, skip))) as batches:
            for batch in batches:
                for drawn, more in self.perturbation.drawn(batch, skip + counts.rows_in):
                    held.append(drawn)
                    counts += more
                    if counts.rows_in >= limits.PART_ROWS or sum(part.nbytes for part in held) >= limits.PART_BYTES:
                        yield pa.Table.from_batches(held, schema), counts
                        skip, held, counts = skip + counts.rows_in, [], Counts()
        if held:
            yield pa.Table.from_batches(held, schema), counts


def perturb_file(
    mechanism: Mechanism,
    source: str | Path,
    target: str | Path,
    options: Options | None = None,
    *,
    ledger: Ledger | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: TellRows | bool | None = None,
    warn: Warn | None = None,
) -> Summary:
    """Draw an output for every row of a file.

    The output appears whole or not at all. While a job runs, and after it was killed, what has been drawn is kept in a
    hidden folder beside the output; with `resume` the same call goes on from there. Rows keep their order.

    Parameters
    ----------
    mechanism : Mechanism
        Draws the outputs.
    source, target : str or Path
        Files, or URLs that fsspec knows. The ending tells the format, see `metricdp.perturb.formats`: .csv, .tsv,
        .jsonl, .parquet, .geojson, .arrow and others, texts also with .gz, .bz2, .xz or .zst after it. "-" is stdin or
        stdout, as CSV.
    options : Options, optional
        Which columns, and what to do with them.
    ledger : Ledger, optional
        Keeps everybody named in the options' `user_column` within a budget.
    resume : bool
        Go on with a job that was cut off, if there is one. Parts are then kept when an error ends the job.
    overwrite : bool
        Replace an existing output, or an unfinished job.
    progress : callable, bool or None
        Called with the rows read and, where it is known, the share of the source that was read. By default a terminal
        or a notebook shows a bar after two seconds; True shows it at once, False never.
    warn : callable, optional
        Called with a sentence about what looks wrong; by default a Python warning.

    Guarantee
    ---------
    See `Perturbation`. Every row of an output was drawn once. A part that was cut off before it was stored is drawn
    again, but nobody has seen the first draw; a ledger charges for both.
    """
    chosen, started, sha256 = options or Options(), time.perf_counter(), content_hash(mechanism)
    source, target = located(source), located(target)
    kind, watch = sink_kind(target), Watch(warn or python_warning)
    direct = str(source) == STANDARD or str(target) == STANDARD or is_url(target)
    if direct and resume:
        got = shown(target) if is_url(target) else STANDARD
        raise reject("resume", "used with files, not with stdin or stdout, nor to write to a URL", repr(got))
    _require_apart(source, target)
    if is_url(target):
        _require_new(str(target), overwrite=overwrite)
    elif str(target) != STANDARD and _is_complete(Path(target), resume=resume, overwrite=overwrite):
        return Summary(Counts(), time.perf_counter() - started, sha256, already_complete=True)
    with (
        told_rows(progress, "perturbing") as tell,
        open_source(source, with_others=chosen.others, encoding=chosen.encoding, names=chosen.names) as opened,
    ):
        job = Job(mechanism, opened, kind, chosen, ledger)
        if ledger is not None:
            ledger.warn_if_unaffordable(mechanism, warn or python_warning)
        if chosen.copy == "all" and (words := suspicion(job.perturbation.copy)) is not None:
            (warn or python_warning)(words)

        def report(counts: Counts) -> None:
            watch.add(counts)
            tell(watch.total.rows_in, opened.fraction())

        if direct:
            _directly(job, target, report)
            resumed = 0
        else:
            identity = _identity(sha256, source, chosen, ledger)
            resumed = _by_parts(job, Parts(Path(target)), identity, report, resume=resume)
    LOG.info("perturbed %d rows in %.2f s", watch.total.rows_in, time.perf_counter() - started)
    return Summary(
        watch.total,
        time.perf_counter() - started,
        sha256,
        resumed=resumed,
        copied=job.perturbation.copy,
        not_copied=job.perturbation.copying.left_out,
    )


def ahead(items: Generator[T, None, None], depth: int = 2) -> Generator[T, None, None]:
    """Yield what `items` yields, computed by a thread that is up to `depth` items ahead.

    An error of the thread is raised where its item would have come. Closing this generator ends the thread.

    Examples
    --------
    >>> list(ahead((n * n for n in range(4))))
    [0, 1, 4, 9]
    """
    stage = _Stage(items, depth)
    try:
        while not isinstance(item := stage.waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stage.stop()


def _directly(job: Job, target: str | Path, report: Callable[[Counts], None]) -> None:
    with closing(job.drawn()) as drawn:
        if str(target) != STANDARD:
            with whole_url(str(target)) if is_url(target) else atomic_file(target) as stream:
                job.write(pa.PythonFile(stream, "w"), drawn, report)
        else:
            job.write(pa.PythonFile(sys.stdout.buffer, "w"), drawn, report)
            sys.stdout.flush()


def _by_parts(
    job: Job, parts: Parts, identity: dict[str, Any], report: Callable[[Counts], None], *, resume: bool
) -> int:
    """Write the output, storing parts on the way; return the rows of parts that were stored before."""
    if resume and parts.exists():
        parts.reopen(identity)
    else:
        parts.begin(identity)
    finished = False
    try:
        earlier = parts.stored()
        resumed = sum(counts.rows_in for _, counts in earlier)
        with closing(job.drawn(resumed)) as drawn, pa.OSFile(str(parts.draft), "wb") as stream:
            job.write(stream, _through(parts, earlier, drawn), report)
        parts.publish()
        finished = True
    except (KeyboardInterrupt, SystemExit):
        resume = True  # a job that was stopped by hand can be resumed
        raise
    finally:
        if not finished:
            _clean_up(parts, keep=resume)
    return resumed


def _through(parts: Parts, earlier: list[tuple[Path, Counts]], drawn: Iterator[Drawn]) -> Iterator[Drawn]:
    """Yield parts from before, then new ones, each stored before it is yielded."""
    for path, counts in earlier:
        yield read_part(path), counts
    for table, counts in drawn:
        parts.store(table, counts)
        yield table, counts


def _clean_up(parts: Parts, *, keep: bool) -> None:
    if keep:
        parts.draft.unlink(missing_ok=True)
        parts.release()
    elif parts.exists():
        parts.discard()


def _require_apart(source: str | Path, target: str | Path) -> None:
    """Refuse to write the output over the input, which may be the only copy of the true points."""
    if STANDARD in (str(source), str(target)) or is_url(source) or is_url(target):
        if is_url(source) and source == target:
            raise reject("target", "another file than `source`", repr(shown(target)))
        return
    if Path(source).exists() and Path(target).exists() and Path(source).samefile(target):
        raise reject("target", "another file than `source`", repr(str(target)))


def _is_complete(target: Path, *, resume: bool, overwrite: bool) -> bool:
    """Return True if resuming and the output is complete; raise rather than overwrite an output."""
    if resume and overwrite:
        msg = "`resume` goes on with an earlier run and `overwrite` starts anew; use one of them."
        raise InvalidInputError(msg)
    if not target.parent.is_dir() or target.is_dir():
        raise reject("target", "a file in a folder that exists", repr(str(target)))
    if Parts(target).exists():
        if not (resume or overwrite):
            msg = f"{target} has an unfinished run; go on with `resume`, or start anew with `overwrite`."
            raise InvalidInputError(msg)
        return False
    if target.exists() and not (resume or overwrite):
        # Drawing again for the same people is a second report, so it must be asked for.
        msg = f"{target} exists; replace it with `overwrite`, or choose another `target`."
        raise InvalidInputError(msg)
    return target.exists() and resume


def _require_new(url: str, *, overwrite: bool) -> None:
    if exists_url(url) and not overwrite:
        msg = f"{shown(url)} exists; replace it with `overwrite`, or choose another `target`."
        raise InvalidInputError(msg)


def _identity(sha256: str, source: str | Path, options: Options, ledger: Ledger | None) -> dict[str, Any]:
    if is_url(source):
        given = describe_url(str(source))
    else:
        found = Path(source).stat()
        given = [str(Path(source).absolute()), found.st_size, found.st_mtime_ns]
    return {
        "format": 2,
        "mechanism": sha256,
        "input": given,
        "options": options.to_dict(),
        "ledger": ledger is not None,
    }


def _kept(kind: pa.DataType) -> pa.DataType | None:
    """Return the type to write a column with that was read as plain texts or values, None if that is its own."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), value_type(kind.value_type), kind.ordered)
    return kind if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else None


def _charged(ledger: Ledger, mechanism: Mechanism) -> Any:
    def sample(points: FloatArray, users: Any, times: Any = None) -> Any:
        if times is None:
            return ledger.sample(mechanism, users, points)
        answers, late = ledger.answer(mechanism, users, points, times=times)
        answers[late] = LATE
        return answers

    return sample


def _require_times(options: Options, ledger: Ledger | None) -> None:
    """Refuse a ledger with times if no column has any: the clock says when a file is read, not when it was written."""
    if ledger is None:
        return
    if ledger.timed and options.time_column is None:
        msg = "A `ledger` with a window or a schedule needs `time_column`, the column that says when each row was."
        raise InvalidInputError(msg)
    if options.time_column is not None and not ledger.timed:
        msg = "`time_column` is for a `ledger` that was made with `window` or `every`; this one counts for ever."
        raise InvalidInputError(msg)


class _End:
    """Follows the last item, with the error that ended the items, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Stage(Generic[T]):
    """A thread that computes items, and a short queue of those that nobody has taken yet."""

    def __init__(self, items: Generator[T, None, None], depth: int) -> None:
        self.items = items
        self.waiting: Queue[T | _End] = Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        # Free the items that nobody took now, not when the last reference to this stage goes.
        try:
            while True:
                self.waiting.get_nowait()
        except Empty:
            return

    def _work(self) -> None:
        try:
            for item in self.items:
                if not self._put(item):
                    break
            self.items.close()
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            self._put(_End(error))
        else:
            self._put(_End())

    def _put(self, item: T | _End) -> bool:
        """Hand an item over; return False if the consumer has stopped."""
        while not self._stopped.is_set():
            try:
                self.waiting.put(item, timeout=_PATIENCE)
            except Full:
                continue
            return True
        return False
