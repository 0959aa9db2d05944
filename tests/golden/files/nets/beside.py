"""What model.py imports."""

WIDTH = 4
