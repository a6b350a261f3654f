"""INT8 calibration and quantization workbench for segmentation networks on TensorRT."""

__version__ = "0.1.0"
