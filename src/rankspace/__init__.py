"""Exact inference with very large state spaces, in rank space.

The packages, each importing only from those left of it:

    trees -> fgg -> lowrank -> inference -> cli        (viz beside them)

`rankspace.trees` holds constituency trees, `rankspace.fgg` factor graph grammars and their sum-product,
`rankspace.lowrank` the decompositions and the compiler to rank space, `rankspace.inference` the engines. Importing
`rankspace` imports trees alone, and no torch.
"""

from rankspace.trees import Tree

__version__ = "0.1.0"

__all__ = ["Tree", "__version__"]
