"""Exact inference with very large state spaces, in rank space.

The packages, each importing only from those left of it:

    fgg -> lowrank -> inference -> cli        (viz beside them)

`rankspace.fgg` holds factor graph grammars and their sum-product, `rankspace.lowrank` the decompositions and the
compiler to rank space, `rankspace.inference` the engines. Importing `rankspace` imports none of them.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
