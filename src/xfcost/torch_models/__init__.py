"""The only folder that imports torch: the real model, and the accounts that need one (traced, timed, probed).

Shape letters in variable suffixes, everywhere in this folder:
B batch, N query tokens, M key tokens, D width, H heads, K head width, G windows, T tokens of a window, C channels.
"""
