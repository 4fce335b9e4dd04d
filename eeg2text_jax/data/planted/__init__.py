"""Synthetic data with a dial for its information: word features, raw recordings and fMRI scans."""
