"""`xfcost report`: one HTML file."""
