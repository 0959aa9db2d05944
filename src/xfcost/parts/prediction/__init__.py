"""Seconds predicted from a calibration, without running the model."""
