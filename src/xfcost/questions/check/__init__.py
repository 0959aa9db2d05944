"""`xfcost check`: a run held against budgets."""
