"""The device mesh, functions compiled for all arms, runs on several hosts."""
