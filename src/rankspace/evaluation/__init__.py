"""What results are called: F1 of parses and its bounds, accuracy of tags, perplexity and n-gram references."""

from rankspace.evaluation.bounds import (
    Bound,
    Bounds,
    binarised,
    bounds,
    left_branching,
    random_branching,
    right_branching,
)
from rankspace.evaluation.bracket_files import read_trees, score_files
from rankspace.evaluation.brackets import brackets
from rankspace.evaluation.ngrams import NgramModel
from rankspace.evaluation.parsing import Bucket, LabelRecall, ParseScores, score
from rankspace.evaluation.perplexity import Perplexity, chain_perplexity, tree_perplexity
from rankspace.evaluation.tags import TagScores, many_to_one, preterminals

__all__ = [
    "Bound",
    "Bounds",
    "Bucket",
    "LabelRecall",
    "NgramModel",
    "ParseScores",
    "Perplexity",
    "TagScores",
    "binarised",
    "bounds",
    "brackets",
    "chain_perplexity",
    "left_branching",
    "many_to_one",
    "preterminals",
    "random_branching",
    "read_trees",
    "right_branching",
    "score",
    "score_files",
    "tree_perplexity",
]
