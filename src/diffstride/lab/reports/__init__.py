"""Pages, figures and tables of runs, made from the files in their folders alone."""
