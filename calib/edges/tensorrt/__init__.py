"""Engines with TensorRT 10 and 11: buffers, calibration, building, running. TensorRT is imported on use only."""
