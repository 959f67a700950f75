"""Labelled images and recordings as batches of tensors. A path goes through these steps:

1. Open: ``opening`` reads folders by class, or asks ``tables`` (parquet, the hub) or ``published``
   for ``labelled_files``: a training and a test set of files, and the names of classes.
2. Decode: ``image_decoding`` and ``audio_decoding`` make pixels or samples of one file.
3. Hold: ``images`` and ``recordings`` have all examples of a set, decoded or not.
4. Batch: ``batches`` yields what is trained and tested on.
"""
