"""``calib cache retarget``: the header of another TensorRT version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from calib.core.formats import trt_cache
from calib.core.printable import counted
from calib.core.rangefaults import find_faults
from calib.core.trtcache import ALGORITHMS, CacheHeader, CalibrationCache, header_number, parse, reads_caches
from calib.edges.tables import read_range_file
from calib.errors import UsageError
from calib.jobs.cache.edit import EditResult, write_file
from calib.stages.rangecoverage import listed, parser_made

NOT_PROVED = "TensorRT {version} will take these scales without checking any of them: the header alone was changed"


def retarget(source: str, output: Path, version: str | None = None, algorithm: str | None = None) -> EditResult:
    """Give a cache the header of another TensorRT version; every other byte stays.

    Args:
        source: a TensorRT cache.
        output: file to write.
        version: TensorRT version that shall read it; None keeps the cache's own, if its header states one.
        algorithm: calibrator class in the header; None keeps the cache's own, EntropyCalibration2 where it has none.

    Raises:
        UsageError: neither is given, the version reads no caches, or the algorithm is none of TensorRT's.
        FormatError: the source is no cache.
    """
    cache = parse(read_range_file(source), source)
    version = version or (_own_version(cache) if algorithm else None)
    if version is None:
        raise UsageError(
            "--trt-version",
            expected="the TensorRT version that shall read the cache",
            got="none, and none in the cache's header" if algorithm else "none",
            remedy="name it, such as --trt-version 10.14.1",
        )
    kept = cache.header.algorithm if cache.header.number and cache.header.algorithm in ALGORITHMS else None
    chosen = algorithm or kept or ALGORITHMS[0]
    if chosen not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise UsageError(f"--algorithm {chosen}", expected=f"one of {known}", got=repr(chosen), remedy="name one")
    ending = cache.header.ending.lstrip(" \t") or "\n"  # blanks behind the header would make it another one
    header = CacheHeader(f"TRT-{header_number(version)}-{chosen}", ending)
    write_file(output, replace(cache, header=header).render())
    warnings = tuple(_unproved(cache, version, chosen))
    return EditResult(output, len(cache.entries), warnings, {"before": cache.header.text, "header": header.text})


def _own_version(cache: CalibrationCache) -> str | None:
    version = cache.header.version
    return version if version is not None and reads_caches(version) else None


def _unproved(cache: CalibrationCache, version: str, algorithm: str) -> Iterator[str]:
    yield NOT_PROVED.format(version=version)
    made = tuple(entry.name for entry in cache.entries if parser_made(entry.name))
    if made:
        subject = counted(len(made), "key was", "keys were")
        yield f"{subject} made up by another version's parser and may name other tensors: {listed(made)}"
    yield "tensors that this version makes or fuses otherwise have no scale and run in float; its build log names them"
    yield "nothing ties a cache to weights or images: it must still be of this very network"
    if algorithm != "EntropyCalibration2":
        yield f"the header names {algorithm}: trtexec, Polygraphy and DLA ignore it and calibrate anew"
    faults = find_faults(trt_cache.table_of(cache, "cache"))
    bad = (*faults.dead, *sorted(faults.unusable))
    if bad:
        subject = counted(len(bad), "scale is", "scales are")
        yield f"{subject} zero, negative, not finite or next to nothing; `calib cache lint` lists them"
