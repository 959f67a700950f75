"""Training of any network with learnable strides, on Lightning."""
