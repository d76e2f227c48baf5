"""What all distributions over parse trees know of spans: log-probabilities, constraints, marginals, labels."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from rankspace.distributions.contract import Batch, Distribution, Parameters
from rankspace.distributions.memory import within_memory
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.decoding import crossing
from rankspace.inference.differentiation import differentiable, differentiating
from rankspace.inference.tree.nodes import Spans
from rankspace.trees import Tree

Lengths = Sequence[int] | Int[Tensor, "batch"] | None
SpanWeights = Shaped[Tensor, "batch end end"] | None
LabelVisitor = Callable[[Spans, int, Tensor], None]  # spans, their first symbol s, p(symbol s + x) [span, x]

WEIGHTS = "span_weights"  # in Batch.extras: [batch, length + 1, length + 1], added to the log weight of each span


class SpanDistribution(Distribution):
    """A distribution over sentences by binary trees, as far as its spans go; see `TreeDistribution`."""

    def __init__(self, parameters: Parameters, **options: Any) -> None:
        super().__init__(parameters, **options)
        symbols = self.num_nonterminals + self.num_preterminals
        if self.sizes["symbol"] != symbols:
            raise ShapeError(
                f"{type(self).__name__}: rules are over {self.sizes['symbol']} symbols but log_root has "
                f"{self.num_nonterminals} nonterminals and log_emission {self.num_preterminals} preterminals; give "
                f"rules over {symbols} symbols."
            )

    @property
    def num_nonterminals(self) -> int:
        return self.parameters["log_root"].shape[-1]

    @property
    def num_preterminals(self) -> int:
        return self.parameters["log_emission"].shape[-2]

    @property
    def vocabulary(self) -> int:
        return self.parameters["log_emission"].shape[-1]

    # Log-probabilities.

    @within_memory
    def log_prob(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        span_weights: SpanWeights = None,
    ) -> Float[Tensor, "batch"]:
        """log p(sentence) of each sentence; -inf, with zero gradient, for one that cannot be produced.

        `span_weights`, [batch, length + 1, length + 1]: entry [b, i, j] is added to the log-probability of every tree
        that has the span [i, j); -inf forbids the span. The result is then the log of a weighted sum over trees. Its
        gradient with respect to the weights is the posterior probability of the spans. Entries that are no span of
        their sentence are never read.

        Differentiable once in all parameters and weights (any number of times with backend="autograd"). Exact: where
        numbers leave the range of the dtype, those sentences are computed again in float64 and, if that is not enough,
        in log space.
        """
        return self._log_z(self._weighted(words, lengths, span_weights))

    @within_memory
    def log_joint(self, words: Int[Tensor, "batch length"], trees: Sequence[Tree | None]) -> Float[Tensor, "batch"]:
        """log p(sentence, bracketing): symbols (and ranks) are summed out. Lengths are those of the trees.

        A tree that is not binary stands for all its binary refinements, whose probabilities are added; symbols of the
        trees are ignored. None in place of a tree, as `mbr` has it for an impossible sentence, gives -inf. Words of
        trees that are numbers must be those of the sentences, else RankspaceError is raised; words that are text are
        not compared. Spans that cross a bracket are forbidden by span weights. Differentiable.
        """
        lengths = [0 if tree is None else len(tree) for tree in trees]
        if len(trees) != words.shape[0] or max(lengths, default=0) > words.shape[1]:
            raise ShapeError(
                f"{type(self).__name__}.log_joint: {len(trees)} trees of {max(lengths, default=0)} words or fewer do "
                f"not fit words {tuple(words.shape)}; give one tree for each row."
            )
        self._check_tree_words(words, trees)
        size = words.shape[1] + 1
        forbidden = torch.zeros(len(trees), size, size, dtype=torch.bool)
        for mask, tree in zip(forbidden, trees, strict=True):
            if tree is not None:
                mask[: len(tree) + 1, : len(tree) + 1] = crossing(tree.spans(), len(tree))
        weights = torch.zeros(forbidden.shape, dtype=self.dtype).masked_fill(forbidden, -math.inf).to(self.device)
        return self._log_z(self._weighted(words, lengths, weights))

    def _check_tree_words(self, words: Tensor, trees: Sequence[Tree | None]) -> None:
        for b, (row, tree) in enumerate(zip(words.tolist(), trees, strict=True)):
            for i, word in enumerate(() if tree is None else tree.words):
                if isinstance(word, int) and word != row[i]:
                    raise RankspaceError(
                        f"{type(self).__name__}.log_joint: word {i} of trees[{b}] is {word} but words[{b}, {i}] is "
                        f"{row[i]}; give each sentence its own tree."
                    )

    def _weighted(self, words: Tensor, lengths: Lengths, span_weights: Tensor | None) -> Batch:
        if span_weights is None:
            return self._batch(words, lengths)
        batch = self._batch(words, lengths, {WEIGHTS: span_weights.to(self.device, self.dtype)})
        size = words.shape[1] + 1
        if span_weights.shape != (words.shape[0], size, size):
            raise ShapeError(
                f"{type(self).__name__}: span_weights are {tuple(span_weights.shape)} but words {tuple(words.shape)} "
                f"need {(words.shape[0], size, size)}: [batch, begin, end]."
            )
        if self.validate and not bool((batch.layout.from_chart(batch.extras[WEIGHTS].detach()) < math.inf).all()):
            raise RankspaceError(
                f"{type(self).__name__}: span_weights have NaN or +inf at a span of its sentence; give numbers, or "
                f"-inf to forbid a span."
            )
        return batch

    # Marginals.

    @within_memory
    def span_marginals(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        span_weights: SpanWeights = None,
    ) -> Float[Tensor, "batch end end"]:
        """p(span [i, j) is a constituent | sentence) at [sentence, i, j], [batch, length + 1, length + 1].

        Entries of width 1 are 1, those of more words sum to length - 1, the whole sentence included; all other entries,
        and impossible sentences, are 0. This is the gradient of `log_prob` with respect to span weights: one inside and
        one outside pass. No gradient.
        """
        size = words.shape[1] + 1
        if span_weights is None:
            span_weights = torch.zeros(words.shape[0], size, size, dtype=self.dtype, device=self.device)
        with differentiating():
            leaf = differentiable(span_weights.to(self.device, self.dtype)).detach().requires_grad_()
            total = self.detach()._log_z(self._weighted(words, lengths, leaf))
            (marginals,) = torch.autograd.grad(total.where(total > -math.inf, 0).sum(), leaf)
        return marginals

    @within_memory
    def labelled_marginals(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        spans: Shaped[Tensor, "..."] | None = None,
        span_weights: SpanWeights = None,
    ) -> Float[Tensor, "..."]:
        """p(span is a constituent with symbol A | sentence), for all symbols: nonterminals, then preterminals.

        With `spans`, rows (sentence, begin, end): [span, symbol], and no larger table is made. Without: [batch, length
        + 1, length + 1, symbol]. Sums over symbols are `span_marginals`, with the same `span_weights`. No gradient.
        """
        batch = self._weighted(words, lengths, span_weights)
        symbols = self.num_nonterminals + self.num_preterminals
        if spans is None:
            size = words.shape[1] + 1
            table = torch.zeros(len(batch.lengths), size, size, symbols, dtype=self.dtype, device=self.device)

            def keep(at: Spans, first: int, p: Tensor) -> None:
                table[at.sentence, at.begin, at.end, first : first + p.shape[1]] = p.to(table.dtype)

            self._posterior_labels(batch, None, keep)
            return table
        return self._labels_at(batch, spans.to(self.device), symbols)

    def _labels_at(self, batch: Batch, spans: Tensor, symbols: int) -> Float[Tensor, "span symbol"]:
        self._check_spans(batch, spans)
        size = batch.words.shape[1] + 1
        distinct, which = torch.unique(spans, dim=0, return_inverse=True)
        place = torch.full((len(batch.lengths), size, size), -1, device=self.device)
        place[distinct.unbind(1)] = torch.arange(len(distinct), device=self.device)
        table = torch.zeros(len(distinct), symbols, dtype=self.dtype, device=self.device)

        def keep(at: Spans, first: int, p: Tensor) -> None:
            table[place[at.sentence, at.begin, at.end], first : first + p.shape[1]] = p.to(table.dtype)

        self._posterior_labels(batch, place >= 0, keep)
        return table.index_select(0, which)

    def _check_spans(self, batch: Batch, spans: Tensor) -> None:
        if spans.dim() != 2 or spans.shape[1] != 3 or spans.is_floating_point():
            raise ShapeError(
                f"{type(self).__name__}.labelled_marginals: spans are {spans.dtype} {tuple(spans.shape)}; give "
                f"integers [span, 3]: rows (sentence, begin, end)."
            )
        lengths = torch.tensor(batch.lengths, device=self.device)
        sentence, begin, end = spans.unbind(1)
        known = (sentence >= 0) & (sentence < len(lengths))
        room = lengths[sentence.where(known, 0)] if len(lengths) else torch.zeros_like(sentence)
        wrong = ~(known & (begin >= 0) & (begin < end) & (end <= room))
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0, 0])
            raise RankspaceError(
                f"{type(self).__name__}: spans[{row}] is {tuple(spans[row].tolist())}, which is no (sentence, begin, "
                f"end) of this batch; give 0 <= begin < end <= length."
            )

    def _posterior_labels(self, batch: Batch, wanted: Tensor | None, visit: LabelVisitor) -> None:
        def attempt(parameters: Parameters, part: Batch, sentences: Tensor, log_space: bool) -> Tensor:
            def relay(at: Spans, first: int, p: Tensor) -> None:
                visit(at._replace(sentence=sentences[at.sentence]), first, p)

            return self._labels(parameters, part, log_space, None if wanted is None else wanted[sentences], relay)

        self._in_range(batch, attempt)

    def _in_range(self, batch: Batch, attempt: Callable[[Parameters, Batch, Tensor, bool], Tensor]) -> None:
        """Attempts a batch in linear space, what is lost there in float64, and what is lost there in log space.

        `attempt(parameters, batch, sentences, log_space)` returns which of the batch's sentences were lost; `sentences`
        are their numbers in the whole batch.
        """
        with torch.no_grad():
            own = {name: value.detach() for name, value in self.parameters.items()}
            sentences = torch.arange(len(batch.lengths), device=self.device)
            if self.backend == "autograd":
                attempt(own, batch, sentences, True)
                return
            lost = attempt(own, batch, sentences, False)
            if not bool(lost.any()):
                return
            wide = {name: value.double() for name, value in own.items()}
            again = lost.nonzero()[:, 0]
            sentences, batch = sentences[again], batch.subset(again).to_dtype(torch.float64)
            if self.dtype != torch.float64:
                again = attempt(wide, batch, sentences, False).nonzero()[:, 0]
                sentences, batch = sentences[again], batch.subset(again)
            if len(sentences):
                attempt(wide, batch, sentences, True)

    # What an engine must know how to do. `parameters` are detached and may be float64 copies of the distribution's own.

    @abstractmethod
    def _labels(
        self, parameters: Parameters, batch: Batch, log_space: bool, wanted: Tensor | None, visit: LabelVisitor
    ) -> Bool[Tensor, "batch"]:
        """Posterior probabilities of symbols, a few spans at a time; returns which sentences were lost.

        `visit(spans, first, p)` is called for groups of spans that cover all (of a chart `wanted`, bool [batch, length
        + 1, length + 1]: all that are true there): p[s, x] is the probability that span s has the symbol first + x.
        Zeros for impossible and lost sentences, or no visit. In log space nothing is lost.
        """
