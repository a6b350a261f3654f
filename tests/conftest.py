"""Fixtures every test module may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("untimed")
REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root folder of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real data beside the repository: images, networks, caches, public cases."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs the data folder {folder.name}/ beside the repository")
    return folder
