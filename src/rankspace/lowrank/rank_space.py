"""The rank-space compiler: decompose the factors of a B-FGG, sum its states out, keep only ranks (section 4.1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rankspace.errors import GrammarError
from rankspace.fgg import FGG
from rankspace.lowrank.b_fgg import is_b_fgg
from rankspace.lowrank.cpd import CPD
from rankspace.lowrank.decomposition import Decomposition, decompose, state_labels
from rankspace.lowrank.elimination import Table, eliminate_states


@dataclass(frozen=True)
class RankSpace(FGG):
    """The rank-space grammar of a B-FGG: an FGG with the same Z that runs over ranks.

    `original` is the grammar it was made from, `factored` the same with rank nodes, `steps` the tables in the order in
    which they were computed (each once).
    """

    original: FGG = field(kw_only=True)
    factored: FGG = field(kw_only=True)
    decompositions: tuple[Decomposition, ...] = field(kw_only=True)
    steps: tuple[Table, ...] = field(kw_only=True)
    rank_labels: frozenset[str] = field(kw_only=True)

    @property
    def tables(self) -> Mapping[str, Tensor]:
        """Every factor with a rank axis, by name: for the PCFG H, I, J, K, L of figure 4."""
        return {
            label: self.tensors[label]
            for label, ends in self.grammar.terminals.items()
            if self.rank_labels.intersection(ends)
        }

    def explain(self) -> str:
        """The derivation of this grammar in words and counts: what was merged and summed out, and what it costs."""
        from rankspace.lowrank.explanation import explain

        return explain(self)


def to_rank_space(
    fgg: FGG,
    cpds: Mapping[str, CPD] | None = None,
    *,
    rank_labels: Iterable[str] = ("R",),
    tolerance: float | None = 1e-6,
) -> RankSpace:
    """Compiles any B-FGG into its rank-space grammar: same Z, same gradients with respect to the CPD matrices.

    `cpds` gives decompositions by rule name or terminal label; see `decompose`. Nodes that already carry one of the
    `rank_labels` count as rank nodes too, so a grammar written with them (`zoo.factored_pcfg`) needs no `cpds`.

    A state node is summed out when every factor at it is a matrix to a rank node or a vector, and every nonterminal
    edge at it can only be rewritten by rules whose external node hangs on one rank node, or by rules without
    nonterminal edges and with at most one word (these are written into the parent). States that several nonterminal
    edges share give tables of higher order. Every other state node stays, with the factors that hold it.

    Tables take their names from `fgg.table_names`, else from their factors ("V*U"). Rules are named pi_1, pi_2, ...,
    those of the start symbol last, as in figure 4. Time is that of the tables, r^2 m each for ranks r and states m.
    Raises GrammarError if the FGG is not a B-FGG.
    """
    verdict = is_b_fgg(fgg)
    if not verdict:
        raise GrammarError(f"to_rank_space: not a B-FGG: {verdict.reason}")
    factored, decompositions = decompose(fgg, cpds or {}, tolerance)
    ranks = frozenset(step.rank_label for step in decompositions).union(
        label for label in rank_labels if label in fgg.domains and label not in state_labels(fgg)
    )
    result = eliminate_states(factored, ranks)
    return RankSpace(
        result.grammar,
        result.domains,
        result.factors,
        fgg.table_names,
        original=fgg,
        factored=factored,
        decompositions=decompositions,
        steps=result.tables,
        rank_labels=ranks,
    )
