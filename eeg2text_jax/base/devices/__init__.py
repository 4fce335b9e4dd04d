"""The mesh, where arrays lie on it, functions compiled for all arms, runs on several hosts."""
