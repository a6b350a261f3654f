"""Does the build fit the TensorRT it is to be used with."""

from __future__ import annotations

from calib.core.trtcache import header_number
from calib.edges.tensorrt.library import installed_tensorrt
from calib.errors import UsageError
from calib.jobs.verify.subject import Subject
from calib.types.gate import Check

FIRST_WITHOUT_CACHES = 11


def check_target(subject: Subject, asked: str | None) -> Check:
    """Compare the TensorRT version in the caches' header with the one that will read them.

    Args:
        subject: the folder.
        asked: version that the user names; None for the installed one.

    Raises:
        UsageError: the version is malformed.
    """
    found = asked or installed_tensorrt()
    headed = subject.request["trt_version"]
    if found is None:
        return Check("tensorrt", "skip", f"caches are headed for {headed}; give --trt-version to compare")
    whose = "asked for" if asked else "installed"
    parts = ".".join(found.split(".")[:3])
    if _major(found) >= FIRST_WITHOUT_CACHES:
        detail = f"TensorRT {parts} ({whose}) reads no caches; release the Q/DQ network"
        return Check("tensorrt", "note" if not asked else "pass", detail)
    if header_number(parts) == header_number(headed):
        return Check("tensorrt", "pass", f"caches are headed for {headed}, as {whose}")
    return Check(
        "tensorrt",
        "fail",
        f"caches are headed for {headed}, {whose} is {parts}: TensorRT ignores such a cache without a word",
        f"build again with --trt-version {parts}",
    )


def _major(text: str) -> int:
    head = text.partition(".")[0]
    if not head.isdecimal():
        raise UsageError(
            f"--trt-version {text}",
            expected="major.minor.patch, such as 10.14.1",
            got=repr(text),
            remedy="`pip show tensorrt` tells the installed one",
        )
    return int(head)
