"""Use a trained network: load it wherever it is kept, classify files with it, export it."""
