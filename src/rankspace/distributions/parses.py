"""What all distributions over parse trees offer besides their spans: decoding and samples.

Queries are written once, here and in `spans`; what an engine must know how to do is abstract at the end of each class.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.contract import Batch, Parameters
from rankspace.distributions.memory import within_memory
from rankspace.distributions.spans import WEIGHTS, LabelVisitor, Lengths, SpanDistribution, SpanWeights
from rankspace.errors import RankspaceError
from rankspace.inference.decoding import best_tree, best_trees, brackets
from rankspace.inference.tree.choosing import choose_in_portions, drawn
from rankspace.inference.tree.growth import grow
from rankspace.inference.tree.nodes import Nodes, Spans, ranks_of, trees_of
from rankspace.trees import Tree

__all__ = ["WEIGHTS", "BestParses", "LabelVisitor", "Lengths", "PriorSample", "TreeDistribution"]


class BestParses(NamedTuple):
    trees: list[Tree | None]  # with symbols; None for an impossible sentence
    log_prob: Float[Tensor, "batch"]  # of the words with that tree, its symbols and, in `viterbi_joint`, its ranks
    ranks: list[list[int] | None] | None  # in `viterbi_joint`: of each tree's branching nodes, in preorder


class PriorSample(NamedTuple):
    trees: list[Tree | None]  # with their words; None where a sentence was cut off because it grew too long
    dropped: list[int]  # which these are
    lost_mass: float  # p(more words than allowed), exactly: its expectation is the share of dropped ones


class TreeDistribution(SpanDistribution):
    """A distribution over sentences by binary trees. Symbols: nonterminals first, then preterminals.

    Sentences of no word or one word are impossible, because only nonterminals can be a root, and all of them branch.
    """

    # Decoding.

    @within_memory
    def mbr(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        labelled: bool = False,
        span_weights: SpanWeights = None,
    ) -> list[Tree | None]:
        """The tree of each sentence with the largest expected number of correct spans; None if it is impossible.

        With `labelled`, of correct spans with their symbols: each span is given its most probable symbol, found width
        by width, and counts that symbol's posterior probability; preterminals are then nodes of the tree as well.
        Expectations are those under `span_weights` (see `log_prob`): a span they forbid is in no tree, and a sentence
        that they leave no tree has None.
        """
        self._check_parameters("mbr")
        batch = self._weighted(words, lengths, span_weights)
        if labelled:
            scores, symbols = self._best_labels(batch)
        else:
            scores, symbols = self.span_marginals(words, lengths, span_weights), None
        scores = _allowed(batch, scores)
        found = brackets(best_tree(scores, batch.lengths).splits, batch.lengths)
        possible = self._possible(batch, scores)
        sentences = self._word_lists(batch)
        trees: list[Tree | None] = []
        for b, (sentence, spans) in enumerate(zip(sentences, found, strict=True)):
            if not possible[b] or spans is None:
                trees.append(None)
            elif symbols is None:
                trees.append(Tree.from_spans(sentence, spans))
            else:
                leaves = [(i, i + 1) for i in range(len(sentence))]
                named = [(i, j, int(symbols[b, i, j])) for i, j in [*spans, *leaves]]
                trees.append(Tree.from_spans(sentence, named))
        return trees

    @within_memory
    def mbr_kbest(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        *,
        k: int,
        span_weights: SpanWeights = None,
    ) -> list[list[tuple[Tree, float]]]:
        """The k trees with the largest expected numbers of correct spans (of two words or more) and these numbers.

        Fewer where a sentence has fewer binary trees, none where it is impossible. `span_weights` as in `mbr`.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise RankspaceError(f"{type(self).__name__}.mbr_kbest: k is {k!r}; give a whole number, at least 1.")
        self._check_parameters("mbr_kbest")
        batch = self._weighted(words, lengths, span_weights)
        scores = _allowed(batch, self.span_marginals(words, lengths, span_weights))
        best = best_trees(scores, batch.lengths, k)
        possible = self._possible(batch, scores)
        results = []
        for b, sentence in enumerate(self._word_lists(batch)):
            pairs = zip(best.brackets[b], best.totals[b].tolist(), strict=False)
            results.append([(Tree.from_spans(sentence, spans), total) for spans, total in pairs if possible[b]])
        return results

    def _best_labels(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Each span's largest posterior of a symbol, and the symbol; [batch, length + 1, length + 1]."""
        size = batch.words.shape[1] + 1
        scores = torch.zeros(len(batch.lengths), size, size, dtype=self.dtype, device=self.device)
        symbols = torch.zeros_like(scores, dtype=torch.int64)

        def keep(at: Spans, first: int, p: Tensor) -> None:
            top, symbol = p.max(1)
            scores[at] = top.to(scores.dtype)
            symbols[at] = symbol + first

        self._posterior_labels(batch, None, keep)
        return scores, symbols.cpu()

    def _possible(self, batch: Batch, scores: Tensor) -> list[bool]:
        """Whether a sentence has a tree: then the whole of it has a positive score."""
        ends = torch.tensor(batch.lengths, dtype=torch.int64, device=self.device)
        whole = scores[torch.arange(len(ends), device=self.device), 0, ends] > 0
        return [possible and n > 1 for possible, n in zip(whole.tolist(), batch.lengths, strict=True)]

    def _word_lists(self, batch: Batch) -> list[list[int]]:
        return [row[:length] for row, length in zip(batch.words.tolist(), batch.lengths, strict=True)]

    @within_memory
    def viterbi(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, span_weights: SpanWeights = None
    ) -> BestParses:
        """The most probable tree with its symbols, and the log-probability of both with the words.

        With `span_weights`, those of the tree's spans are added to its log-probability.
        """
        return self._best_parses("viterbi", words, lengths, span_weights)

    def _best_parses(self, query: str, words: Tensor, lengths: Lengths, span_weights: Tensor | None) -> BestParses:
        self._check_parameters(query)
        batch = self._weighted(words, lengths, span_weights)
        with torch.no_grad():
            nodes, log_prob = self._best({name: value.detach() for name, value in self.parameters.items()}, batch)
        ranks = ranks_of(nodes, len(batch.lengths)) if query == "viterbi_joint" else None
        return BestParses(trees_of(nodes, self._word_lists(batch)), log_prob.to(self.dtype), ranks)

    def _largest(self, batch: Batch) -> Float[Tensor, "batch"]:
        return self._best({name: value.detach() for name, value in self.parameters.items()}, batch)[1]

    def _check_parameters(self, query: str) -> None:
        """NaN would make every tree as good as none."""
        for label, value in self.parameters.items():
            if bool(value.isnan().any()):
                place = value.isnan().nonzero()[0].tolist()
                raise RankspaceError(
                    f"{type(self).__name__}.{query}: {label}{place} is NaN; check what it was computed from."
                )

    # Samples.

    @within_memory
    def sample_posterior(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        num: int = 1,
        generator: torch.Generator | None = None,
        span_weights: SpanWeights = None,
    ) -> list[list[Tree] | None]:
        """`num` exact samples of the tree with its symbols given each sentence; None if it is impossible.

        With `span_weights`, from the distribution that they make (see `log_prob`). Without samples (num = 0) all lists
        are empty.
        """
        self._check_count("sample_posterior", num)
        self._check_parameters("sample_posterior")
        batch = self._weighted(words, lengths, span_weights)
        if not num:
            return [[] for _ in batch.lengths]
        found: list[Nodes] = []

        def attempt(parameters: Parameters, part: Batch, sentences: Tensor, log_space: bool) -> Tensor:
            nodes, lost = self._draw(parameters, part, log_space, num, generator)
            tree = sentences[nodes.tree // num] * num + nodes.tree % num
            found.append(nodes._replace(tree=tree))
            return lost

        self._in_range(batch, attempt)
        copies = [sentence for sentence in self._word_lists(batch) for _ in range(num)]
        trees = trees_of(Nodes.joined(found), copies)
        each = [trees[b * num : (b + 1) * num] for b in range(len(batch.lengths))]
        return [None if any(tree is None for tree in own) else own for own in each]  # type: ignore[misc]

    def sample(self, num: int, max_length: int, generator: torch.Generator | None = None) -> PriorSample:
        """`num` sentences with their trees from the distribution itself, none of more than `max_length` words.

        A tree that grows beyond that is given up, and counted. So this ends for every grammar, even for one whose trees
        need not end. `lost_mass` is the probability of that, from a recursion over lengths.
        """
        self._check_count("sample", num)
        if max_length < 1:
            raise RankspaceError(f"{type(self).__name__}: sample: max_length is {max_length}; give at least one word.")
        self._check_parameters("sample")
        with torch.no_grad():
            choose = drawn(generator)
            emission = self.parameters["log_emission"].detach()
            roots = choose(self.parameters["log_root"].detach().expand(num, -1))
            nodes, dropped = grow(
                roots, lambda nonterminals: self._branch(nonterminals, generator), self.num_nonterminals, max_length
            )
            leaves = nodes.at(nodes.symbol >= self.num_nonterminals)
            kind = leaves.symbol - self.num_nonterminals
            words = choose_in_portions(choose, len(kind), self.vocabulary, lambda some: emission[kind[some]], kind)
            lost_mass = 1 - self._log_lengths(max_length).exp().sum().clamp(max=1).item()
        sentences: list[list[int]] = [[0] * int(size) for size in torch.bincount(leaves.tree, minlength=num)]
        for tree, begin, word in torch.stack([leaves.tree, leaves.begin, words], 1).tolist():
            sentences[tree][begin] = word
        return PriorSample(trees_of(nodes, sentences), dropped.nonzero()[:, 0].tolist(), lost_mass)

    def _check_count(self, query: str, num: int) -> None:
        if num < 0:
            raise RankspaceError(f"{type(self).__name__}: {query}: num is {num}; give zero or more.")

    # What an engine must know how to do. `parameters` are detached and may be float64 copies of the distribution's own.

    @abstractmethod
    def _draw(
        self, parameters: Parameters, batch: Batch, log_space: bool, num: int, generator: torch.Generator | None
    ) -> tuple[Nodes, Bool[Tensor, "batch"]]:
        """Samples of trees given the sentences, and which sentences were lost. Tree number sentence * num + sample.

        Impossible and lost sentences have no nodes. In log space nothing is lost.
        """

    @abstractmethod
    def _best(self, parameters: Parameters, batch: Batch) -> tuple[Nodes, Float[Tensor, "batch"]]:
        """The best tree with symbols of each sentence, and its log weight; no nodes and -inf if it is impossible."""

    @abstractmethod
    def _branch(self, symbols: Int[Tensor, "node"], generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Rules drawn for some nonterminals: the symbols of their left and right parts."""

    @abstractmethod
    def _log_lengths(self, max_length: int) -> Float[Tensor, "length"]:
        """log p(a sentence has n words), n = 0 .. max_length or less, where no more is left, in float64."""


def _allowed(batch: Batch, scores: Float[Tensor, "batch end end"]) -> Float[Tensor, "batch end end"]:
    """Scores of spans, -inf where weights forbid the span."""
    return scores.masked_fill(batch.extras[WEIGHTS] == -torch.inf, -torch.inf) if WEIGHTS in batch.extras else scores
