"""`xfcost diff`: what changed from one report or file to another."""
