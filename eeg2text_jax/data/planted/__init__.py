"""Synthetic word features, raw recordings and fMRI scans that hold an adjustable amount of information about words."""
