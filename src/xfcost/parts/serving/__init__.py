"""Serving on given devices: does a run fit, a lower bound of its time, the devices that share it, which to choose."""
