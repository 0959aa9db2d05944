"""`xfcost compare`: several systems side by side."""
