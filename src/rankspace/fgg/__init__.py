"""Factor graph grammars: the formalism, its reference inference, and well-known models written in it."""

from rankspace.fgg import zoo
from rankspace.fgg.conjunction import conjoin
from rankspace.fgg.derivations import Derivation, Enumerated, enumerate_derivations, z_by_enumeration
from rankspace.fgg.factor_graph import FactorGraph
from rankspace.fgg.factor_graph_grammar import FGG, Domain, Factor, Indicator
from rankspace.fgg.grammar import Grammar, Rule, Useless
from rankspace.fgg.hypergraph import Edge, Fragment, Hypergraph, Node
from rankspace.fgg.json_format import load_json, save_json
from rankspace.fgg.observation import observe
from rankspace.fgg.sum_product import Best, Entropy, nonterminal_values, sum_product

__all__ = [
    "FGG",
    "Best",
    "Derivation",
    "Domain",
    "Edge",
    "Entropy",
    "Enumerated",
    "Factor",
    "FactorGraph",
    "Fragment",
    "Grammar",
    "Hypergraph",
    "Indicator",
    "Node",
    "Rule",
    "Useless",
    "conjoin",
    "enumerate_derivations",
    "load_json",
    "nonterminal_values",
    "observe",
    "save_json",
    "sum_product",
    "z_by_enumeration",
    "zoo",
]
