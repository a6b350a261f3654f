"""The diagnosis: the ladder of rungs from the reference to the candidate, the place where accuracy falls, the cause."""

from calib.jobs.diagnose.request import DiagnoseRequest
from calib.jobs.diagnose.run import Diagnosis, diagnose, run_diagnosis

__all__ = ["DiagnoseRequest", "Diagnosis", "diagnose", "run_diagnosis"]
