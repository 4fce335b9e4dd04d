"""What every wing stands on, and what knows nothing of EEG: messages to the user, files, kinds of values.

In: paths, URLs, arrays, texts of compiled programs. Out: the same, local, checked, placed, timed. `stores` are buckets,
`devices` the mesh and several hosts, `chips` what a compiled program costs.
"""
