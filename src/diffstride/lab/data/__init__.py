"""Labelled images and recordings as batches of tensors. A path goes through these steps:

1. Open: ``opening`` asks ``class_folders``, ``tables`` (parquet, the hub) or ``published`` for
   ``labelled_files``: a training and a test set of files, the class of each, and the names of
   classes. How the two sets are split, and which examples are taken, is decided here.
2. Decode: ``decoding`` goes through the files of a set; ``image_decoding`` and ``audio_decoding``
   (with ``audio_headers``) make pixels or samples of one file.
3. Hold: ``images`` (and ``digits``) and ``recordings`` have all examples of a set, decoded or not.
4. Batch: ``image_batches`` and ``audio_batches`` yield what is trained and tested on.

Another kind of data is a ``Kind`` in ``labelled_files``, and a module in each of steps 2 to 4.
"""
