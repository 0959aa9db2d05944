"""The ground floor: operations, the ledger and its metadata, units, grids, errors. It imports nothing above it."""
