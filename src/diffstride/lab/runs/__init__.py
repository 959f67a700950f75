"""The folder of a run, without torch: configs, files that are written atomically and checked when read."""
