"""A folder of files: one output file per input file, here or on a cluster, each written once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from metricdp._atomic import atomic_file
from metricdp._dask import connected, finished
from metricdp._progress import TellRows, told_rows
from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.files.reading import content_hash, read_file
from metricdp.ledger.budgets import Ledger
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.copying import suspicion
from metricdp.perturb.formats import endings, open_source, sink_kind, suffixes
from metricdp.perturb.job import Job
from metricdp.perturb.options import Options
from metricdp.perturb.parts import JobFolder, sync
from metricdp.perturb.remote import is_url, located, shown
from metricdp.perturb.summary import Counts, Summary, Warn, Watch, python_warning

__all__ = ["FileTask", "load_known", "partition_keys", "perturb_folder", "perturb_one"]

_STATE, _MECHANISM = ".metricdp", "mechanism.mdp"

# What Hive writes where a partition's value is null.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# How often a task on a cluster may fail, or lose its worker, before it is given up.
_RETRIES = 3


@dataclass(frozen=True)
class FileTask:
    """One file of a folder, as a worker is told of it: paths, no data.

    state : the hidden folder of drafts, records and the mechanism.
    sha256 : hash of the mechanism.
    """

    name: str
    source: Path
    target: Path
    state: Path
    sha256: str
    options: Options

    @property
    def record(self) -> Path:
        """Where the counts of the file's rows are kept."""
        return self.state / f"{hashlib.sha256(self.name.encode()).hexdigest()[:32]}.json"


def perturb_folder(
    mechanism: Mechanism,
    source: str | Path,
    target: str | Path,
    options: Options | None = None,
    *,
    ledger: Ledger | None = None,
    cluster: str | None = None,
    resume: bool = False,
    progress: TellRows | bool | None = None,
    warn: Warn | None = None,
) -> Summary:
    """Draw an output for every row of every file of a folder, into files of the same names in another folder.

    Parameters
    ----------
    mechanism, options, ledger, warn :
        As for `perturb_file`. A ledger cannot be used on a cluster: one process at a time may charge it.
    source, target : str or Path
        Folders; on a cluster, every worker must find them under the same path. Names that begin with "." or "_" are
        ignored. Folders called `day=2024-01-01` give the files inside them a column `day`, which can be copied and can
        be the user's; it is a text.
    cluster : str, optional
        Address of a Dask scheduler, such as tcp://10.0.0.1:8786. By default this process does the files one by one.
    resume : bool
        Go on with a job that was cut off: finished files are not done again.
    progress : callable, bool or None
        Called with the rows done and the share of files that are done; otherwise as for `perturb_file`.

    Guarantee
    ---------
    As for `perturb_file`. An output file appears once, whole: if two workers did the same file, because one was
    believed dead, the first to finish wins and the other's output is deleted.
    """
    if ledger is not None and cluster is not None:
        msg = "`ledger` cannot be used with `cluster`, since one process at a time may charge a ledger."
        raise InvalidInputError(msg)
    source, target = located(source), located(target)
    for parameter, folder in (("source", source), ("target", target)):
        if is_url(folder):
            raise reject(parameter, "a folder on the disk; a URL can only be that of a single file", shown(folder))
    started, sha256, watch = time.perf_counter(), content_hash(mechanism), Watch(warn or python_warning)
    if ledger is not None:
        ledger.warn_if_unaffordable(mechanism, warn or python_warning)
    tasks = _tasks(Path(source), Path(target), sha256, options or Options())
    state = JobFolder(Path(target) / _STATE)
    if _is_complete(state, tasks, resume=resume):
        return Summary(Counts(), time.perf_counter() - started, sha256, files=len(tasks), already_complete=True)
    _begin(state, tasks, mechanism, resume=resume)
    try:
        with told_rows(progress, "perturbing") as tell:
            done = _do_all(tasks, mechanism, ledger, cluster, watch, tell)
    except BaseException as error:
        kept = resume or cluster is not None or any(one.target.exists() for one in tasks)
        if isinstance(error, InvalidInputError) and not kept:
            state.discard()  # so that the mended command can be given as it is
        else:
            state.release()
        raise
    state.discard()
    if tasks[0].options.copy == "all" and (words := suspicion(done.copied)) is not None:
        (warn or python_warning)(words)
    return Summary(
        watch.total,
        time.perf_counter() - started,
        sha256,
        resumed=done.resumed,
        files=len(tasks),
        copied=tuple(done.copied),
        not_copied=done.not_copied,
    )


def perturb_one(task: FileTask, mechanism: Mechanism | None = None, ledger: Ledger | None = None) -> dict[str, Any]:
    """Do one file, unless it is done; return the counts of its rows, or the error."""
    if task.target.exists():
        if not task.record.exists():
            return {"error": "there is an output of this name that no run of this job has written"}
        record: dict[str, Any] = json.loads(task.record.read_bytes())
        return record | {"done_before": True}
    draft = task.state / f"{secrets.token_hex(8)}.draft"
    try:
        answer = _write(task, draft, mechanism or load_known(task.state / _MECHANISM, task.sha256), ledger)
        # The record comes first, so that every output has one.
        with atomic_file(task.record) as stream:
            stream.write(json.dumps(answer).encode())
        _publish(draft, task.target)
    except InvalidInputError as error:
        return {"error": str(error)}
    finally:
        draft.unlink(missing_ok=True)
    return answer


def partition_keys(name: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file's name give, as Hive and Spark write them.

    Examples
    --------
    >>> partition_keys("day=2024-01-01/city=S%C3%A3o/part-0.parquet")
    {'day': '2024-01-01', 'city': 'São'}
    """
    pairs = (folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder)
    return {unquote(key): None if text == _NULL_PARTITION else unquote(text) for key, _, text in pairs if key}


@lru_cache(maxsize=4)
def load_known(path: str | Path, sha256: str) -> Mechanism:
    """Load a mechanism file without proving it private; the caller knows its hash from a process that has proved it.

    Raises
    ------
    InvalidInputError
        If the file has another hash.
    """
    contents = read_file(path)
    if contents.sha256 != sha256:
        raise reject("path", f"the mechanism file with hash {sha256}", f"one with {contents.sha256}")
    return contents.mechanism


@dataclass
class _Done:
    """What all files have together: rows of earlier runs, columns that were copied, and columns that were not."""

    resumed: int = 0
    copied: dict[str, None] = field(default_factory=dict)
    not_copied: dict[str, str] = field(default_factory=dict)


def _write(task: FileTask, draft: Path, mechanism: Mechanism, ledger: Ledger | None) -> dict[str, Any]:
    # No warning here: whether most points lie outside is judged over all files.
    watch = Watch(lambda _: None)
    options, keys = task.options, partition_keys(task.name)
    with open_source(
        task.source, with_others=options.others, encoding=options.encoding, names=options.names, constants=keys
    ) as source:
        job = Job(mechanism, source, sink_kind(task.target), options, ledger)
        with closing(job.drawn()) as drawn, pa.OSFile(str(draft), "wb") as stream:
            job.write(stream, drawn, watch.add)
    copying = job.perturbation.copying
    return {
        "counts": dataclasses.asdict(watch.total),
        "copied": list(copying.names),
        "not_copied": dict(copying.left_out),
    }


def _publish(draft: Path, target: Path) -> None:
    """Give a draft its name unless another worker has finished the same file before."""
    sync(draft)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(draft, target)
    except FileExistsError:
        return
    except OSError:  # some file systems have no links
        if not target.exists():
            draft.rename(target)
    sync(target.parent)


def _tasks(source: Path, target: Path, sha256: str, options: Options) -> list[FileTask]:
    if not source.is_dir():
        raise reject("source", "a folder", repr(str(source)))
    source, target = source.absolute(), target.absolute()
    if target.resolve().is_relative_to(source.resolve()):
        # The next run would take the outputs for inputs.
        raise reject("target", "outside of the folder `source`", repr(str(target)))
    paths = [
        path
        for path in source.rglob("*")
        if not any(part.startswith((".", "_")) for part in path.relative_to(source).parts)
    ]
    _require_inside(source, paths)
    names = sorted(path.relative_to(source).as_posix() for path in paths if path.is_file())
    others = [name for name in names if not name.casefold().endswith(suffixes())]
    if others or not names:
        # Ignoring them would lose rows silently.
        got = ", ".join(others[:3]) or "none"
        raise reject("source", f"a folder of files that end in {endings()}", got)
    for name in names:
        sink_kind(target / name)  # outputs have the formats of their sources, and some are only read
    return [FileTask(name, source / name, target / name, target / _STATE, sha256, options) for name in names]


def _require_inside(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse links to no file, and links out of the folder, to files that its owner may not be allowed to read."""
    for path in paths:
        if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(folder.resolve())):
            got = f"the link {path.relative_to(folder).as_posix()}"
            raise reject("source", "a folder without links but to files inside it", got)


def _is_complete(state: JobFolder, tasks: Sequence[FileTask], *, resume: bool) -> bool:
    """Return True if resuming and all outputs are there; raise if the folder holds anything else."""
    target = state.folder.parent
    if target.exists() and not target.is_dir():
        raise reject("target", "a folder, because `source` is one", repr(str(target)))
    target.mkdir(parents=True, exist_ok=True)
    if state.exists():
        if not resume:
            msg = f"{target} has an unfinished run; go on with `resume`, or choose another `target`."
            raise InvalidInputError(msg)
        return False
    if not any(target.iterdir()):
        return False
    if resume and all(task.target.exists() for task in tasks):
        return True
    raise reject("target", "a new or an empty folder", repr(str(target)))


def _begin(state: JobFolder, tasks: Sequence[FileTask], mechanism: Mechanism, *, resume: bool) -> None:
    described = [(task.name, task.source.stat()) for task in tasks]
    listed = json.dumps([(name, found.st_size, found.st_mtime_ns) for name, found in described])
    identity = {
        "format": 2,
        "mechanism": tasks[0].sha256,
        "input": hashlib.sha256(listed.encode()).hexdigest(),
        "options": tasks[0].options.to_dict(),
    }
    if resume and state.exists():
        state.reopen(identity)
        for draft in state.folder.glob("*.draft"):
            draft.unlink(missing_ok=True)
    else:
        state.begin(identity)
    mechanism.save(state.folder / _MECHANISM)


def _do_all(
    tasks: Sequence[FileTask],
    mechanism: Mechanism,
    ledger: Ledger | None,
    cluster: str | None,
    watch: Watch,
    tell: TellRows,
) -> _Done:
    """Do the files and add up their counts."""
    failed: dict[str, list[str]] = {}
    all_done = _Done()
    with closing(_answers(tasks, mechanism, ledger, cluster)) as answers:
        for done, (task, answer) in enumerate(answers, start=1):
            if "error" in answer:
                failed.setdefault(answer["error"], []).append(task.name)
            else:
                counts = Counts(**answer["counts"])
                watch.add(counts)
                all_done.resumed += counts.rows_in if answer.get("done_before") else 0
                all_done.copied |= dict.fromkeys(answer["copied"])
                all_done.not_copied |= answer["not_copied"]
            tell(watch.total.rows_in, done / len(tasks))
    if failed:
        raise InvalidInputError(_failures(failed, len(tasks)))
    return all_done


def _failures(failed: dict[str, list[str]], total: int) -> str:
    """Return what went wrong with which files, each kind of error once."""
    count = sum(map(len, failed.values()))
    then = "go on with `resume`" if count < total else "try again"
    words = [
        f"{names[0]}{f' and {len(names) - 1:,} more' if len(names) > 1 else ''}: {error}"
        for error, names in failed.items()
    ]
    others = f" (and {len(words) - 3:,} other errors)" if len(words) > 3 else ""
    return f"{count} of {total} files failed; mend them and {then}. {' '.join(words[:3])}{others}"


def _answers(
    tasks: Sequence[FileTask], mechanism: Mechanism, ledger: Ledger | None, cluster: str | None
) -> Generator[tuple[FileTask, dict[str, Any]], None, None]:
    if cluster is None:
        for task in tasks:
            yield task, perturb_one(task, mechanism, ledger)
    else:
        yield from _on_cluster(perturb_one, tasks, cluster)


def _on_cluster(
    work: Callable[[FileTask], dict[str, Any]], tasks: Sequence[FileTask], address: str
) -> Generator[tuple[FileTask, dict[str, Any]], None, None]:
    """Yield each task with its answer as it finishes, done by the workers of the Dask scheduler at `address`.

    Tasks of a worker that dies are given to another. `work` may be called twice for one task, also at the same time,
    since a worker that is believed dead may be alive.
    """
    with connected(address, "cluster") as client:
        # Not pure: a second run with the same tasks must not get the answers of the first.
        futures = {client.submit(work, task, pure=False, retries=_RETRIES): task for task in tasks}
        for future, task in finished(futures):
            yield task, _cluster_answer(future)


def _cluster_answer(future: Any) -> dict[str, Any]:
    error = future.exception()
    if error is None:
        answer: dict[str, Any] = future.result()
        return answer
    # Errors of the operating system name paths only; others may quote what is in a file.
    detail = str(error) if isinstance(error, OSError) else "see the workers' memory and logs"
    return {"error": f"{type(error).__name__}, {detail}"}
