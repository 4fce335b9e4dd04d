"""Buckets: local copies of inputs; workdirs that are uploaded while they change."""
