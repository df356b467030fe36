"""Perturb a Spark table with `mapInArrow`: the kernel sees Arrow batches, no row becomes a Python object.

The mechanism travels as its file and every executor checks its hash; random keys are drawn where the rows are. Write
the answer once and go on from there: Spark computes a table anew for every action, and every time is another report.

    python spark_map_in_arrow.py MECHANISM.mdp POINTS.parquet PRIVATE.parquet
"""

import os
import sys
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession

from metricdp import load
from metricdp.files import content_hash
from metricdp.perturb import Options, Perturbation, load_known

SCHEMA = "output_id int, lon double, lat double"


def perturbed(points: DataFrame, mechanism: str, schema: str = SCHEMA, **options) -> DataFrame:
    """Return the outputs for a table of points; options are the fields of `metricdp.perturb.Options`."""
    load(mechanism)  # proves once, here, that it is private
    sha256, name = content_hash(mechanism), Path(mechanism).name
    points.sparkSession.sparkContext.addFile(mechanism)

    def partition(batches):
        known = load_known(SparkFiles.get(name), sha256)
        kernel = None
        for batch in batches:
            kernel = kernel or Perturbation.of(known, batch.schema, Options(**options))
            yield kernel(batch)

    return points.mapInArrow(partition, schema)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("metricdp").getOrCreate()
    perturbed(spark.read.parquet(sys.argv[2]), sys.argv[1]).write.parquet(sys.argv[3])
    spark.stop()
