"""From a build folder to a TensorRT engine, or to the trtexec command that makes it."""

from calib.jobs.engine.request import EngineRequest
from calib.jobs.engine.run import EngineResult, build_engine

__all__ = ["EngineRequest", "EngineResult", "build_engine"]
