"""`xfcost reach`: how far information travels."""
