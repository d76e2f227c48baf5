"""Tree models as factor graph grammars."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.grammar import Rule

# Names of the rank-space tables (figure 4) by the factors they are products of.
TABLES = {"V*U": "H", "W*U": "I", "V*emission": "J", "W*emission": "K", "root*U": "L"}


def pcfg(
    root: Float[Tensor, "symbol"],
    rule: Float[Tensor, "symbol symbol symbol"],
    emission: Float[Tensor, "symbol vocab"],
) -> FGG:
    """Figure 1b: every symbol may rewrite to two symbols or to a word."""
    return _binary_branching("N", range(len(root)), root, rule, emission)


def split_pcfg(
    root: Float[Tensor, "nonterminal"],
    rule: Float[Tensor, "nonterminal symbol symbol"],
    emission: Float[Tensor, "preterminal vocab"],
) -> FGG:
    """A PCFG whose nonterminals head the binary rules and whose preterminals, numbered after them, emit the words."""
    return pcfg(*_with_preterminals(root, rule, emission))


def factored_pcfg(
    root: Float[Tensor, "symbol"],
    head: Float[Tensor, "symbol rank"],
    left: Float[Tensor, "rank symbol"],
    right: Float[Tensor, "rank symbol"],
    emission: Float[Tensor, "symbol vocab"],
) -> FGG:
    """Figure 3a (TD-PCFG): the rule tensor is sum_q U[q, A] V[q, B] W[q, C] around a rank node."""
    binary = Rule.build(
        "X",
        {"n1": "N", "r2": "R", "n3": "N", "n4": "N"},
        [("U", "r2", "n1"), ("V", "r2", "n3"), ("W", "r2", "n4"), ("X", "n3"), ("X", "n4")],
        external=["n1"],
        name="pi_6",
    )
    return _with_binary_rule(binary, {"R": len(left)}, root, emission, {"U": head.T, "V": left, "W": right})


def lpcfg(
    root: Float[Tensor, "symbol"],
    head: Float[Tensor, "symbol rank"],
    pair: Float[Tensor, "rank symbol symbol"],
    emission: Float[Tensor, "symbol vocab"],
) -> FGG:
    """Figure 3b (LPCFG): the rule tensor is sum_q U[q, A] V'[q, B, C]."""
    binary = Rule.build(
        "X",
        {"n1": "N", "r2": "R", "n3": "N", "n4": "N"},
        [("U", "r2", "n1"), ("V'", "r2", "n3", "n4"), ("X", "n3"), ("X", "n4")],
        external=["n1"],
        name="pi_6",
    )
    return _with_binary_rule(binary, {"R": len(pair)}, root, emission, {"U": head.T, "V'": pair})


def split_factored_pcfg(
    root: Float[Tensor, "nonterminal"],
    head: Float[Tensor, "nonterminal rank"],
    left: Float[Tensor, "rank symbol"],
    right: Float[Tensor, "rank symbol"],
    emission: Float[Tensor, "preterminal vocab"],
) -> FGG:
    """`factored_pcfg` with nonterminals first and preterminals after them, as RankSpacePCFG takes its parameters."""
    root, head, emission = _with_preterminals(root, head, emission)
    return factored_pcfg(root, head, left, right, emission)


def lexicalised_pcfg(
    root: Float[Tensor, "symbol word"],
    left_head: Float[Tensor, "symbol word symbol symbol word"],
    right_head: Float[Tensor, "symbol word symbol symbol word"],
    emission: Float[Tensor, "symbol word"],
    product: bool = False,
) -> FGG:
    """A lexicalised PCFG: X(N, H) is a symbol with its head word.

    `left_head[A, h, B, C, k]` is the weight of A[h] -> B[h] C[k], `right_head[A, h, B, C, k]` of A[h] -> B[k] C[h], and
    `emission[A, h]` of A[h] -> h. The product form has one node NH = (symbol, head).
    """
    symbols, words = root.shape
    same = torch.eye(words, dtype=root.dtype, device=root.device)
    if product:
        size = symbols * words
        return _binary_branching(
            "NH",
            [(symbol, word) for symbol in range(symbols) for word in range(words)],
            root.reshape(size),
            (
                torch.einsum("ahbck,hj->ahbjck", left_head, same) + torch.einsum("ahbck,hj->ahbkcj", right_head, same)
            ).reshape(size, size, size),
            (emission[:, :, None] * same).reshape(size, words),
        )
    nodes = {"n1": "N", "h1": "H", "n2": "N", "n3": "N", "k": "H"}
    return FGG.build(
        "S",
        [
            Rule.build("S", {"n1": "N", "h1": "H"}, [("root", "n1", "h1"), ("X", "n1", "h1")], name="root"),
            Rule.build(
                "X",
                nodes,
                [("left_head", "n1", "h1", "n2", "n3", "k"), ("X", "n2", "h1"), ("X", "n3", "k")],
                external=["n1", "h1"],
                name="left",
            ),
            Rule.build(
                "X",
                nodes,
                [("right_head", "n1", "h1", "n2", "n3", "k"), ("X", "n2", "k"), ("X", "n3", "h1")],
                external=["n1", "h1"],
                name="right",
            ),
            Rule.build(
                "X",
                {"n1": "N", "h1": "H", "o2": "O"},
                [("emission", "n1", "h1"), ("is", "h1", "o2")],
                external=["n1", "h1"],
                name="word",
            ),
        ],
        domains={"N": symbols, "H": words, "O": words},
        factors={
            "root": root,
            "left_head": left_head,
            "right_head": right_head,
            "emission": emission,
            "is": same,
        },
    )


def qcfg(
    root: Float[Tensor, "symbol source"],
    rule: Float[Tensor, "symbol source symbol source symbol source"],
    emission: Float[Tensor, "symbol source vocab"],
    product: bool = False,
) -> FGG:
    """Quasi-synchronous CFG: each target symbol is aligned to a node of the source tree; A[i] -> B[j] C[k].

    The product form has one node NS = (symbol, source node).
    """
    symbols, sources = root.shape
    if product:
        size = symbols * sources
        return _binary_branching(
            "NS",
            [(symbol, source) for symbol in range(symbols) for source in range(sources)],
            root.reshape(size),
            rule.reshape(size, size, size),
            emission.reshape(size, -1),
        )
    return FGG.build(
        "S",
        [
            Rule.build("S", {"n1": "N", "s1": "S"}, [("root", "n1", "s1"), ("X", "n1", "s1")], name="root"),
            Rule.build(
                "X",
                {"n1": "N", "s1": "S", "n2": "N", "s2": "S", "n3": "N", "s3": "S"},
                [("rule", "n1", "s1", "n2", "s2", "n3", "s3"), ("X", "n2", "s2"), ("X", "n3", "s3")],
                external=["n1", "s1"],
                name="binary",
            ),
            Rule.build(
                "X",
                {"n1": "N", "s1": "S", "o2": "O"},
                [("emission", "n1", "s1", "o2")],
                external=["n1", "s1"],
                name="word",
            ),
        ],
        domains={"N": symbols, "S": sources, "O": emission.shape[2]},
        factors={"root": root, "rule": rule, "emission": emission},
    )


def _binary_branching(label: str, symbols: Sequence[Any], root: Tensor, rule: Tensor, emission: Tensor) -> FGG:
    """Figure 1b over symbols of any kind, called by the node label."""
    binary = Rule.build(
        "X",
        {"n1": label, "n2": label, "n3": label},
        [("rule", "n1", "n2", "n3"), ("X", "n2"), ("X", "n3")],
        external=["n1"],
        name="pi_6",
    )
    return _with_binary_rule(binary, {label: symbols}, root, emission, {"rule": rule})


def _with_binary_rule(
    binary: Rule,
    domains: Mapping[str, int | Sequence[Any]],
    root: Tensor,
    emission: Tensor,
    factors: Mapping[str, Tensor],
) -> FGG:
    """pi_4 (root) and pi_5 (word) of figure 1b around a given pi_6."""
    label = binary.rhs.label_of["n1"]
    return FGG.build(
        "S",
        [
            Rule.build("S", {"n1": label}, [("root", "n1"), ("X", "n1")], name="pi_4"),
            Rule.build("X", {"n1": label, "o2": "O"}, [("emission", "n1", "o2")], external=["n1"], name="pi_5"),
            binary,
        ],
        domains={label: len(root), "O": emission.shape[1], **domains},
        factors={"root": root, "emission": emission, **factors},
        table_names=TABLES,
    )


def _with_preterminals(root: Tensor, heads: Tensor, emission: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters over all symbols: preterminals are neither root nor head a rule, nonterminals emit nothing."""
    preterminals, nonterminals = len(emission), len(root)
    return (
        torch.cat([root, root.new_zeros(preterminals)]),
        torch.cat([heads, heads.new_zeros(preterminals, *heads.shape[1:])]),
        torch.cat([emission.new_zeros(nonterminals, emission.shape[1]), emission]),
    )
