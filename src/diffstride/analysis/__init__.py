"""Questions about any network: what it costs, what its strides are, how to train them."""
