"""Does the model use the EEG? Cluster statistics, verdict and report."""
