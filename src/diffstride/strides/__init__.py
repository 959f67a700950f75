"""What a search for strides has found: as numbers, as fixed layers, as code."""
