"""The jobs behind ``calib cache``."""
