"""Seconds measured on a device."""
