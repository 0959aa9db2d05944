"""What a ledger may have in addition to its rows, a folder each: its options, its computation, its text and its JSON."""
