"""What a ledger may have in addition to its rows, a folder each: options, computation, text and JSON."""
