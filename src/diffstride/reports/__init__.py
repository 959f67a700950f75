"""What a run looks like. Reads the files of run folders, and nothing else of the library."""
