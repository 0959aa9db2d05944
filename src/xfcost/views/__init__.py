"""Ledgers and comparisons -> documents and figures: the reports that several questions show. They never measure."""
