"""`xfcost find`: which models fit, over the gallery or over ranges of one model's keys."""
