"""A run on given devices: least time, estimate, memory."""
