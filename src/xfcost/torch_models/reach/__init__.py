"""How far information travels in a running module, found by changing one token at a time."""
