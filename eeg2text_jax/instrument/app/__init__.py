"""The page that judges a visitor's files, each in a process with limits."""
