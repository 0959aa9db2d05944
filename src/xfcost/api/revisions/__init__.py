"""Files as they were at a git revision, in a temporary folder; the working tree is not touched."""
