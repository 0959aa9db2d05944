"""A training step and run: backward pass, optimizer, saved activations, and the plan that divides them."""
