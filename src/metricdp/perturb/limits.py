"""Sizes that bound the memory of a job: what is held at once, and what is refused because it is larger."""

from __future__ import annotations

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "CHUNK_BYTES",
    "CHUNK_ROWS",
    "LARGEST_PIECE",
    "LARGEST_WINDOW",
    "LONGEST_FEATURE",
    "LONGEST_LINE",
    "LONGEST_NOTE",
    "MOST_COLUMNS",
    "PART_BYTES",
    "PART_ROWS",
    "READ_BYTES",
]

# Bytes taken from a file at once, of each column where columns are stored apart.
READ_BYTES = 2**20

# A batch, whose outputs are drawn at once: rows enough for the sampler's threads, and bytes of its decoded texts.
BATCH_ROWS, BATCH_BYTES = 2**18, 2**25

# A chunk of an output, such as a record batch of Arrow or a row group of Parquet: rows, and bytes of the columns whose
# values differ in length, which is a kilobyte per row.
CHUNK_ROWS, CHUNK_BYTES = 2**17, 2**27

# A part of a job, which is stored on disk before anything more is drawn: rows, or bytes if rows are long.
PART_ROWS, PART_BYTES = 2**20, 2**26

# Columns of a table, properties of GeoJSON included. Each takes memory in every batch, whatever is in it.
MOST_COLUMNS = 2**14

# Decompressed bytes of what a file compresses as one piece, which can only be read as a whole.
LARGEST_PIECE = 2**30

# Bytes of a row of CSV, which is also how much of a CSV file is parsed at once.
LONGEST_LINE = 2**22

# Bytes that decompressing an xz file may take; its own settings ask for at most 65 MB. zstd's limit is 128 MB.
LARGEST_WINDOW = 2**27

# Bytes of a feature of GeoJSON, or of a line of JSON. Decoded, one of nothing but brackets takes thirty times as many.
LONGEST_FEATURE = 2**23

# Bytes of what describes columns: the first line of CSV, GeoParquet's note.
LONGEST_NOTE = 2**20
