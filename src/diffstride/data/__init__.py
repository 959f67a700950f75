"""Images as tensors, from files or from the hub. Knows nothing of the rest of the library."""
