"""The seeds that every generator takes: torch's, numpy's and Python's."""

LARGEST_SEED = 2**32 - 1  # numpy's bound; what is computed of a seed and given to torch stays within 64 bits
