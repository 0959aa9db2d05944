"""The timed account: the real model on a real device."""
