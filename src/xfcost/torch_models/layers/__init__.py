"""The torch modules of `xfcost.layers`, under the same file names."""
