"""The laboratory: everything that trains, sweeps and reports; it needs the extras."""
