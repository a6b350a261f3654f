"""Sensitivity: each quantizer alone, the float work around it shared; what is raced, and what is counted."""
