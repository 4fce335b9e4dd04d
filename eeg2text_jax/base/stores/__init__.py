"""Buckets: copies of inputs, and workdirs that are uploaded while they change."""
