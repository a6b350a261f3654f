"""The release gate: is this build folder sound, is it this network's and this data's, and is it good enough."""

from calib.jobs.verify.request import VerifyRequest
from calib.jobs.verify.run import Verification, verify

__all__ = ["Verification", "VerifyRequest", "verify"]
