"""Buckets: what is in them is worked on in a local folder, and what is finished there is sent to them, in order."""
