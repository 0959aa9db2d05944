"""`xfcost layers` and `survey`: published tables, derived again."""
