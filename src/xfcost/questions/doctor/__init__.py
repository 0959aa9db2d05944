"""`xfcost doctor`: does the installation work?"""
