"""Nonnegative tensor decompositions and what they make possible: inference in rank space, and when it pays."""

from rankspace.lowrank.cpd import CPD, Fit

__all__ = ["CPD", "Fit"]
