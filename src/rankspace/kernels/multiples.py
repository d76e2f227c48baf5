"""Lengths of rows that Triton knows to be multiples: only then are loads and stores up to such a length wide ones.

Of an argument Triton knows whether 16 divides it, and nothing else. A length of 13500 is given to a kernel as 3375
units of 4, and the kernel multiplies: four numbers at once are 16 bytes.
"""

LARGEST = 16


def multiple_of(*sizes: int) -> int:
    """The largest power of two, of at most 16, that divides all sizes."""
    found = LARGEST
    for size in sizes:
        while size % found:
            found //= 2
    return found
