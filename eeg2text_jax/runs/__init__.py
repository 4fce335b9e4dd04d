"""Whole runs, from all stages to checks afterwards.

In: a configuration, a workdir. Out: the files of all stages, a verdict. `pipeline` is the order of the stages,
`opening` what happens before the first, `cells` the loop over the test part; `exported` gives a trained arm away,
`decode_again` checks a run, `notebook` and `python_data` are for Python.
"""
