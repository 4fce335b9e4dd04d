"""Recordings and tables -> samples -> one HDF5 file -> splits -> fixed-shape batches."""
