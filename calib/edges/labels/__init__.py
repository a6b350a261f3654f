"""Labels from files, decoded apart from pictures: index planes never go through colours."""

from calib.core.labelids import LabelMap
from calib.edges.labels.reader import LabelReader, read_label

__all__ = ["LabelMap", "LabelReader", "read_label"]
