"""Perturb data at scale: Arrow batches and streams, files and folders of them, here or on a cluster."""

from metricdp.perturb.columns import PointColumns
from metricdp.perturb.folder import load_known, perturb_folder
from metricdp.perturb.job import perturb_file
from metricdp.perturb.kernel import Perturbation, perturb_batch, perturb_stream
from metricdp.perturb.options import Options
from metricdp.perturb.summary import Counts, Summary

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
