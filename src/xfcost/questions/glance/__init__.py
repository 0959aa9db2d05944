"""`xfcost glance`: every named operation once."""
