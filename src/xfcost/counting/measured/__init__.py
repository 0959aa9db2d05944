"""Rows that `xfcost measure` kept: series over N, their slopes, ratios between them and where they cross."""
