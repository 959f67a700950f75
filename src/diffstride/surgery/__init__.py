"""Changes to any network: convert it to learnable strides, freeze what it learned, export it."""
