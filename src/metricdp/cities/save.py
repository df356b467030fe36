"""Writing a road network as a folder of CSV files."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from pathlib import Path

import pandas as pd

from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["save_folder"]


def save_folder(network: RoadNetwork, path: str | os.PathLike[str]) -> Path:
    """Write `network` as a new folder that `load` reads back exactly.

    The folder appears complete or not at all: it is written aside and renamed.

    Parameters
    ----------
    network : RoadNetwork
        What to write.
    path : path
        The folder, which must not exist yet or be empty; its last part becomes the network's name.

    Returns
    -------
    Path
        The folder.
    """
    # Resolved, so that the last part is a name (not "..") and a link to an empty folder stays what it is.
    folder = Path(path).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"`path` must be a new or an empty folder, got {os.fspath(path)!r}, which holds something."
        raise InvalidInputError(message)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Not `tempfile.mkdtemp`, whose folders only their owner may read; but an empty folder may be one of those.
    mode = stat.S_IMODE(folder.stat().st_mode) if folder.exists() else None
    aside = folder.parent / f".{folder.name}-{secrets.token_hex(8)}"
    aside.mkdir(0o777 if mode is None else mode)
    try:
        for key, frame in _tables(network).items():
            frame.to_csv(aside / f"{key}.csv.xz", index=False)
        if mode is not None:
            aside.chmod(mode)
            folder.rmdir()  # empty; Windows cannot rename onto it
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return Path(path)


def _tables(network: RoadNetwork) -> dict[str, pd.DataFrame]:
    tables = {"nodes": pd.DataFrame({"id": network.ids, "lon": network.lon, "lat": network.lat})}
    if network.n_edges:
        ends = {"u": network.ids[network.u], "v": network.ids[network.v]}
        tables["edges"] = pd.DataFrame({**ends, "length_m": network.length_m})
    if network.task_distance_m is not None:
        tables["distance_to_task"] = pd.DataFrame({"id": network.ids, "road_dist_m": network.task_distance_m})
    return tables
