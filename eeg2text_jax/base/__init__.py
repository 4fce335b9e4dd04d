"""What every wing stands on, and what knows nothing of EEG: messages, files, kinds of values, buckets, devices.

In: paths, URLs, arrays, texts of compiled programs. Out: the same, local, checked, placed, timed.
"""
