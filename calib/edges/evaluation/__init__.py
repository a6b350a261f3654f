"""Files of an evaluation: the confusion matrices of every image, ``evaluation.json``, CSV tables."""
