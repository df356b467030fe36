"""A file of points in, a file of outputs out: bounded memory, whole or not at all, able to go on after a kill."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from metricdp._atomic import atomic_file
from metricdp._validation import FloatArray, reject
from metricdp.files.reading import content_hash
from metricdp.ledger.budgets import Ledger
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.chunks import rechunked
from metricdp.perturb.columns import require_column
from metricdp.perturb.copying import suspicion
from metricdp.perturb.counts import Counts, Watch
from metricdp.perturb.formats import STANDARD, Sink, Source, open_source, sink_kind
from metricdp.perturb.kernel import Perturbation
from metricdp.perturb.parts import Parts, read_part
from metricdp.perturb.pipeline import ahead

__all__ = ["Job", "Options", "Progress", "Summary", "Warn", "perturb_file", "python_warning"]

# A part, which is stored before anything else is drawn, has about so many rows, or so many bytes if its rows are long.
_PART_ROWS, _PART_BYTES = 2**20, 2**26

Progress = Callable[[int, float | None], None]
Warn = Callable[[str], None]
Drawn = tuple[pa.Table, Counts]


@dataclass(frozen=True)
class Options:
    """How a file is to be perturbed; see `perturb_batch` for all but the last.

    user_column : who a row belongs to, for the ledger.
    """

    columns: tuple[str, ...] | None = None
    coordinates: str | None = None
    copy: tuple[str, ...] | str = ()
    outside: str = "clamp"
    keep_input: bool = False
    user_column: str | None = None

    @property
    def others(self) -> bool:
        """Whether other columns than the point's are needed."""
        return bool(self.copy) or self.user_column is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON would give them back."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


@dataclass(frozen=True)
class Summary:
    """What a job did.

    counts : rows and their fates, those of earlier runs included.
    seconds : that this run took.
    sha256 : hash of the mechanism.
    resumed : rows that earlier runs had drawn.
    files : how many were written, those of earlier runs included.
    already_complete : nothing was done, since the output was there.
    copied : the columns that were copied, in all files together.
    not_copied : with `copy="all"`, the columns that were not, each with the reason.
    """

    counts: Counts
    seconds: float
    sha256: str
    resumed: int = 0
    files: int = 1
    already_complete: bool = False
    copied: tuple[str, ...] = ()
    not_copied: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Rows that this run read, per second."""
        return (self.counts.rows_in - self.resumed) / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can hold."""
        counts = dataclasses.asdict(self.counts)
        del counts["swapped"]  # a hint about the columns, not a fate
        others = dataclasses.asdict(self)
        del others["counts"]
        listed = {"copied": list(self.copied), "not_copied": dict(self.not_copied)}
        return {**counts, **others, **listed, "rows_per_second": self.rows_per_second}


class Job:
    """An open source, and what is to be done to its rows."""

    def __init__(
        self, mechanism: Mechanism, source: Source, kind: type[Sink], options: Options, ledger: Ledger | None = None
    ) -> None:
        if (ledger is None) != (options.user_column is None):
            raise reject("user_column", "given if, and only if, there is a ledger", options.user_column)
        if kind.needs_plane and mechanism.bounds.shape[1] != 2:
            raise reject("OUT", "without geometries for a mechanism of other than two axes", kind.suffixes[0])
        self.source, self.kind = source, kind
        general = Perturbation.of(
            mechanism,
            source.schema,
            options.columns,
            coordinates=options.coordinates,
            copy=options.copy,
            outside=options.outside,
            keep_input=options.keep_input,
            as_geometry=kind.geometries,
        )
        users = () if options.user_column is None else (options.user_column,)
        for name in users:
            require_column("user_column", source.schema.names, name)
        self.perturbation = replace(
            general,
            user_column=options.user_column,
            sampler=None if ledger is None else _charged(ledger, mechanism),
        )
        self.points = general.columns.names
        self.others = tuple(name for name in dict.fromkeys((*general.copy, *users)) if name not in self.points)
        self.given = source.selected(self.points, self.others)
        self.schema = self.perturbation.schema(self.given)

    def drawn(self, skip: int = 0) -> Generator[Drawn, None, None]:
        """Yield parts of what is drawn for the rows after the first `skip`, while others are being read and drawn."""
        return ahead(self._grouped(skip), depth=1)

    def write(self, stream: pa.NativeFile, drawn: Iterator[Drawn], report: Callable[[Counts], None]) -> None:
        """Write parts to a file of outputs, telling of each."""

        def placed() -> Iterator[pa.RecordBatch]:
            for table, counts in drawn:
                yield from map(self.perturbation.place, table.to_batches())
                report(counts)

        sink = self._sink(stream)
        try:
            # Parts end where the input's batches do, so they are cut anew.
            for table in rechunked(placed(), self.schema, self.kind.rows_at_once):
                sink.write(table)
            sink.close()
        except BaseException:
            sink.abandon()
            raise

    def _sink(self, stream: pa.NativeFile) -> Sink:
        try:
            return self.kind(stream, self.schema)
        except pa.ArrowNotImplementedError:
            types = ", ".join(sorted({str(self.schema.field(name).type) for name in self.perturbation.copy}))
        raise reject("copy", f"columns of types that {self.kind.suffixes[0]} files can hold", types)

    def _grouped(self, skip: int) -> Generator[Drawn, None, None]:
        held: list[pa.RecordBatch] = []
        counts = Counts()
        schema = self.perturbation.drawn_schema(self.given)
        with closing(ahead(_generator(self.source.batches(self.points, self.others, skip)))) as batches:
            for batch in batches:
                for drawn, more in self.perturbation.drawn(batch, skip + counts.rows_in):
                    held.append(drawn)
                    counts += more
                    if counts.rows_in >= _PART_ROWS or sum(part.nbytes for part in held) >= _PART_BYTES:
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
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Summary:
    """Draw an output for every row of a file.

    The output appears whole or not at all. While a job runs, and after it was killed, what has been drawn waits in a
    hidden folder beside the output; with `resume` the same call goes on from there. Rows keep their order.

    Parameters
    ----------
    mechanism : Mechanism
        Draws the outputs.
    source, target : str or Path
        Files whose names end in .csv, .csv.gz, .parquet, .geojson or .arrow; "-" is stdin or stdout, as CSV.
    options : Options
        Which columns, and what to do with them.
    ledger : Ledger, optional
        Keeps everybody named in the options' `user_column` within a budget.
    resume : bool
        Go on with a job that was cut off, if there is one. Parts are then kept when an error ends the job.
    overwrite : bool
        Replace an output, or the parts of a job, that are there.
    progress : callable, optional
        Is told the rows read and, where it is known, the share of the source that was read.
    warn : callable, optional
        Is told what looks wrong; by default a Python warning.

    Guarantee
    ---------
    See `Perturbation`. Every row of an output was drawn once. A part that was cut off is drawn again, but nobody has
    seen it; a ledger charges for it twice.
    """
    chosen, started, sha256 = options or Options(), time.perf_counter(), content_hash(mechanism)
    kind, watch = sink_kind(target), Watch(warn or python_warning)
    standard = STANDARD in (str(source), str(target))
    if standard and resume:
        raise reject("resume", "used with files, not with stdin or stdout", STANDARD)
    _require_apart(source, target)
    if str(target) != STANDARD and _is_complete(Path(target), resume=resume, overwrite=overwrite):
        return Summary(Counts(), time.perf_counter() - started, sha256, already_complete=True)
    with open_source(source, with_others=chosen.others) as opened:
        job = Job(mechanism, opened, kind, chosen, ledger)
        if chosen.copy == "all" and (words := suspicion(job.perturbation.copy)) is not None:
            (warn or python_warning)(words)

        def report(counts: Counts) -> None:
            watch.add(counts)
            if progress is not None:
                progress(watch.total.rows_in, opened.fraction())

        if standard:
            _directly(job, target, report)
            resumed = 0
        else:
            identity = _identity(sha256, Path(source), chosen, ledger)
            resumed = _by_parts(job, Parts(Path(target)), identity, report, resume=resume)
    return Summary(
        watch.total,
        time.perf_counter() - started,
        sha256,
        resumed=resumed,
        copied=job.perturbation.copy,
        not_copied=job.perturbation.copying.left_out,
    )


def python_warning(words: str) -> None:
    """Warn the way Python does."""
    warnings.warn(words, stacklevel=2)


def _directly(job: Job, target: str | Path, report: Callable[[Counts], None]) -> None:
    with closing(job.drawn()) as drawn:
        if str(target) != STANDARD:
            with atomic_file(target) as stream:
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
        resume = True  # whoever stops a job may want to go on with it
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
    """Refuse an output in the input's place: it would end the only copy of the true points."""
    if STANDARD in (str(source), str(target)):
        return
    if Path(source).exists() and Path(target).exists() and Path(source).samefile(target):
        raise reject("OUT", "another file than IN", repr(str(target)))


def _is_complete(target: Path, *, resume: bool, overwrite: bool) -> bool:
    """Whether a run that was asked to go on finds all done; refuses what would be lost unless told otherwise."""
    if resume and overwrite:
        raise reject("resume", "used without overwrite, which starts anew", "both")
    if not target.parent.is_dir() or target.is_dir():
        raise reject("OUT", "a file in a folder that exists", repr(str(target)))
    if Parts(target).exists():
        if not (resume or overwrite):
            rule = "without an unfinished run (go on with --resume, start anew with --overwrite)"
            raise reject("OUT", rule, repr(str(target)))
        return False
    if target.exists() and not (resume or overwrite):
        # Drawing again for the same people is a second report, so it does not happen unasked.
        raise reject("OUT", "a file that does not exist yet (--overwrite replaces it)", repr(str(target)))
    return target.exists() and resume


def _identity(sha256: str, source: Path, options: Options, ledger: Ledger | None) -> dict[str, Any]:
    found = source.stat()
    return {
        "format": 2,
        "mechanism": sha256,
        "input": [str(source.absolute()), found.st_size, found.st_mtime_ns],
        "options": options.to_dict(),
        "ledger": ledger is not None,
    }


def _charged(ledger: Ledger, mechanism: Mechanism) -> Any:
    def sample(points: FloatArray, users: Any) -> Any:
        return ledger.sample(mechanism, users, points)

    return sample


def _generator(items: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    yield from items
