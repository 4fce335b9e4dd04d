"""Throughput of the stages, beside peers where there are any."""
