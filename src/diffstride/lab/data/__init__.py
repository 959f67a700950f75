"""Images and recordings as tensors, from files or from the hub; knows nothing of the rest."""
