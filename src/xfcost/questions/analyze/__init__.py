"""`xfcost analyze`: one system."""
