"""Folders and Hub names: parameters and text encoders from them, folders that transformers loads."""
