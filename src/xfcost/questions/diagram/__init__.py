"""`xfcost diagram`: blocks side by side."""
