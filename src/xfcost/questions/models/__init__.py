"""`xfcost list`, `show`, `import` and `schema`: which models there are, and their specs."""
