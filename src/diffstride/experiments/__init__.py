"""What joins data, networks and training: recipes and the commands that run them."""
