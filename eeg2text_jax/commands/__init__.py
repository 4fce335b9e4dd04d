"""One module a command; each has `main(argv) -> exit status`."""
