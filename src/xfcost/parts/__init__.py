"""What a ledger may have beside its rows, a folder each: its options, its computation, its text and its JSON."""
