"""The torch modules of `xfcost.layers`."""
