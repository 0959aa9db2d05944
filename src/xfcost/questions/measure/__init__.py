"""`xfcost measure`: a sweep, a row per process, into a file."""
