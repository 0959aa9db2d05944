"""Devices by name: shipped, of the user, and this machine."""
