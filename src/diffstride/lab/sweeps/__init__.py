"""Many runs as one table: the paper's tables, grids of settings, and what carries them out."""
