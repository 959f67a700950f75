"""Images and sound as tensors, from files or the hub. Knows nothing of the rest of the library."""
