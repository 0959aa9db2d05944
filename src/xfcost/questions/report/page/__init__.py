"""The page of `xfcost report`: one HTML file that needs no network."""
