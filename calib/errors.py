"""Every error a user can cause, under one base class.

    CalibError            exit code 2
    ├── UsageError        a flag, a plugin name or a plugin argument
    ├── ManifestError     a data manifest, list or split
    ├── ImageError        an image or label file that cannot be used
    ├── LeakError         calibration images that are also evaluation images
    ├── ModelError        an ONNX file or network that cannot be used
    ├── StatisticsError   activations that cannot be calibrated on (non-finite, never observed)
    ├── FormatError       a cache or other file format, with line and column in its place
    ├── OutputError       a folder that cannot be written, a full disk
    └── MissingLibraryError a library that this command needs and that is not installed

Each states the place, what was expected there, what was found, and what to do about it.
"""

from __future__ import annotations


class CalibError(Exception):
    """An error with a place, an expectation, a finding and a remedy.

    Args:
        place: file, flag, tensor or position the error is about.
        expected: what belongs there.
        got: what was found.
        remedy: what the user can do; one or two sentences.
    """

    exit_code = 2

    def __init__(self, place: str, *, expected: str, got: str, remedy: str) -> None:
        super().__init__(place, expected, got, remedy)
        self.place = place
        self.expected = expected
        self.got = got
        self.remedy = remedy

    def __str__(self) -> str:
        """Render as three short lines, place first."""
        return f"{self.place}: expected {self.expected}, got {self.got}\n  remedy: {self.remedy}"


class UsageError(CalibError):
    """A command-line flag, plugin name or plugin argument is wrong."""


class ManifestError(CalibError):
    """A data manifest, list file or split is wrong."""


class ImageError(CalibError):
    """An image or label file cannot be used."""


class LeakError(CalibError):
    """Calibration images occur in the evaluation split."""


class ModelError(CalibError):
    """An ONNX file or network cannot be used."""


class StatisticsError(CalibError):
    """Activations cannot be calibrated on."""


class FormatError(CalibError):
    """A cache or another file format is malformed; the place holds line and column."""


class OutputError(CalibError):
    """Results cannot be written."""


class MissingLibraryError(CalibError):
    """A library this command needs is not installed."""
