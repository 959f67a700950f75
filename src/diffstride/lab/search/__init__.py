"""Search for strides: learn them, fix them, and train with them from scratch."""
