"""Ledger -> text, file or figure. Reports never measure."""
