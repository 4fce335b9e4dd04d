"""The commands: each reads its arguments and calls a wing below; the exit status comes back.

In: the command line. Out: printed lines, files. `preflight` and `bench` serve one command each.
"""
