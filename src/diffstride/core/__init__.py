"""Pure functions on tensors and integers: no modules, no state."""
