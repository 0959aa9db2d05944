"""The residual stream of a running model."""
