"""A slow reference per mechanism, out of its paper's definition: torch, math and itertools alone, nothing of xfcost.

A mechanism's reference is the function named after its kind, in one of the files that `FILES` lists:

    (options, place, weights, x (B, N, D), memory (B, M, E) where one is read) -> (B, N', D')

`options` are what a spec may say of the mechanism, `place` is where it stands, `weights` are the module's parameters by
name: plain data all of it, so that no geometry, no scale and no default is the mechanism's own.
"""

FILES = ("attention", "chosen", "local", "sequences", "static")
