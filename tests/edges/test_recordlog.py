"""A log of finished work: what was whole stays, what was cut short is written anew, other facts start over."""

from __future__ import annotations

from pathlib import Path

import pytest

from calib.edges.recordlog import RecordLog, read_log, write_log
from calib.errors import OutputError

FACTS = {"a": 1}


def test_records_survive_and_a_torn_end_is_cut_off(tmp_path: Path):
    path = tmp_path / "log"
    with RecordLog(path, FACTS) as log:
        assert log.found == []
        log.append(b"one")
        log.append(b"two")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with RecordLog(path, FACTS) as log:
        assert log.found == [b"one"]
        log.append(b"two")
    assert path.read_bytes() == whole
    write_log(tmp_path / "other", FACTS, [b"one", b"two"])
    assert (tmp_path / "other").read_bytes() == whole


@pytest.mark.parametrize("damage", [b"", b"no log at all, but longer than a head"])
def test_what_is_no_log_of_these_facts_starts_over(tmp_path: Path, damage: bytes):
    path = tmp_path / "log"
    path.write_bytes(damage)
    assert read_log(path, FACTS) == []
    with RecordLog(path, FACTS) as log:
        log.append(b"one")
    assert read_log(path, FACTS) == [b"one"]
    assert read_log(path, {"a": 2}) == []
    with RecordLog(path, {"a": 2}) as log:
        assert log.found == []
    assert read_log(path, FACTS) == []
    assert read_log(tmp_path / "missing", FACTS) == []


def test_a_folder_that_cannot_be_written_is_an_output_error(tmp_path: Path):
    with pytest.raises(OutputError):
        RecordLog(tmp_path / "nowhere" / "log", FACTS)
