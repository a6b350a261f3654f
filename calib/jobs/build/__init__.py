"""The main job: from a network and a data manifest to a build folder."""

from calib.jobs.build.request import BuildRequest, parse_choice, parse_count
from calib.jobs.build.run import BuildResult, build

__all__ = ["BuildRequest", "BuildResult", "build", "parse_choice", "parse_count"]
