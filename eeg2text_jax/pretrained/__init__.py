"""Read checkpoint files into our parameters, and write our parameters to such files."""
