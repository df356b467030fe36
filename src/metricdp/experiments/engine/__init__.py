"""The engine of experiments: jobs, finished results on disk, workers here or on a cluster, progress."""
