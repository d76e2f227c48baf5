"""Distributions over sentences: what users hold."""

from rankspace.distributions.block_hmm import BlockHMM
from rankspace.distributions.chain_results import ChainPath, ChainSample
from rankspace.distributions.chain_state import ChainState
from rankspace.distributions.hmm import HMM
from rankspace.distributions.hsmm import HSMM
from rankspace.distributions.lhmm import LHMM
from rankspace.distributions.lpcfg import LPCFG
from rankspace.distributions.parses import BestParses, PriorSample
from rankspace.distributions.pcfg import PCFG
from rankspace.distributions.rank_space_hmm import RankSpaceHMM
from rankspace.distributions.rank_space_pcfg import RankSpacePCFG
from rankspace.distributions.simple_pcfg import SimplePCFG

__all__ = [
    "HMM",
    "HSMM",
    "LHMM",
    "LPCFG",
    "PCFG",
    "BestParses",
    "BlockHMM",
    "ChainPath",
    "ChainSample",
    "ChainState",
    "PriorSample",
    "RankSpaceHMM",
    "RankSpacePCFG",
    "SimplePCFG",
]
