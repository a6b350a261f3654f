"""``calib qat``: quantization-aware fine-tuning, exported as Q/DQ ONNX."""

from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.run import QatResult, run_qat

__all__ = ["QatRequest", "QatResult", "run_qat"]
