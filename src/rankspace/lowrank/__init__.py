"""Nonnegative tensor decompositions and what they make possible: inference in rank space, and when it pays."""

from rankspace.lowrank.b_fgg import Verdict, is_b_fgg
from rankspace.lowrank.cpd import CPD, Fit
from rankspace.lowrank.decomposition import decompose, fit_cpds, merged_factor
from rankspace.lowrank.planner import Cost, Plan, plan
from rankspace.lowrank.rank_space import RankSpace, to_rank_space

__all__ = [
    "CPD",
    "Cost",
    "Fit",
    "Plan",
    "RankSpace",
    "Verdict",
    "decompose",
    "fit_cpds",
    "is_b_fgg",
    "merged_factor",
    "plan",
    "to_rank_space",
]
