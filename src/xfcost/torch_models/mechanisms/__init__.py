"""The torch modules of `xfcost.mechanisms`, under the same file names."""
