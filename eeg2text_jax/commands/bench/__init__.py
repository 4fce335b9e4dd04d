"""Throughput of decoding and training, beside other libraries."""
