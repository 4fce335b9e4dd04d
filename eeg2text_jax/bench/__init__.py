"""Throughput benchmarks of training and decoding, beside other libraries (peers)."""
