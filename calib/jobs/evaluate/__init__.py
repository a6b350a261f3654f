"""Evaluate networks on a split: per-class IoU, slices, differences with intervals, the gate, the report."""

from calib.jobs.evaluate.request import EvaluateRequest
from calib.jobs.evaluate.run import Evaluation, evaluate, run_evaluation

__all__ = ["EvaluateRequest", "Evaluation", "evaluate", "run_evaluation"]
