"""`xfcost measure`: a grid of configurations, each measured in a process of its own, kept row by row."""
