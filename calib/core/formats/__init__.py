"""Files that hold dynamic ranges: one module a format, each from bytes to a ``RangeTable`` and back."""
