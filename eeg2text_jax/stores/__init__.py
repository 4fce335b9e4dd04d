"""Buckets (gs://, s3://): work happens in a local folder, and finished files are uploaded in order."""
