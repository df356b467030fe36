"""Perturb data at scale: Arrow batches, files and folders of them, here or on a cluster."""

from metricdp.perturb.columns import PointColumns
from metricdp.perturb.counts import Counts
from metricdp.perturb.folder import load_known, perturb_folder
from metricdp.perturb.job import Options, Summary, perturb_file
from metricdp.perturb.kernel import Perturbation, perturb_batch, perturb_stream

__all__ = [
    "Counts",
    "Options",
    "Perturbation",
    "PointColumns",
    "Summary",
    "load_known",
    "perturb_batch",
    "perturb_file",
    "perturb_folder",
    "perturb_stream",
]
