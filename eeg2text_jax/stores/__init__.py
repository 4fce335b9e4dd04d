"""Buckets (gs://, s3://): commands work on local copies, and finished files are uploaded in order."""
