"""Throughput benchmarks of the stages, beside peer libraries."""
