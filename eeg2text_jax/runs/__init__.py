"""Whole runs: `pipeline` is the order of the stages, `opening` what comes before, `cells` decodes the test part.

In: a configuration, a workdir. Out: the files of all stages, a verdict.
"""
