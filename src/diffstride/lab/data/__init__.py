"""Labelled images and recordings: files are opened, decoded, and put into batches of tensors."""
