"""fvcore and the dispatcher over a torch model: what its operations cost, forwards and backwards."""
