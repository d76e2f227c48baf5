"""Nonnegative tensor decompositions and what they make possible: inference in rank space, and when it pays."""

from rankspace.lowrank.cpd import CPD, Fit
from rankspace.lowrank.planner import Cost, Plan, plan

__all__ = ["CPD", "Cost", "Fit", "Plan", "plan"]
