"""The timed account: a torch model on a real device."""
