"""The Python face of the commands: the same results, without a terminal."""
