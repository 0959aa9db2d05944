"""`xfcost devices`: the datasheets."""
