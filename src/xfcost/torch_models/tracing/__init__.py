"""Costs of a torch model's operations, forward and backward, by fvcore's trace and torch's dispatcher."""
