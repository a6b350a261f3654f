"""Measure what each quantizer costs alone: losses by class and slice, ranked, with the work each saves."""

from calib.jobs.sensitivity.request import SensitivityRequest
from calib.jobs.sensitivity.run import Sensitivity, measure_sensitivity, sensitivity

__all__ = ["Sensitivity", "SensitivityRequest", "measure_sensitivity", "sensitivity"]
