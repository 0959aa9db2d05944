"""The layer types of Vaswani et al. 2017, Table 1, derived from the mechanisms' formulas and patterns."""
