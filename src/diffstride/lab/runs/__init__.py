"""The folder of a run, without torch: its config, its files, and its lock."""
