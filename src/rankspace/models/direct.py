"""No network: the logits of every table are weights of their own."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.distributions import HMM, LHMM, LPCFG, PCFG, RankSpaceHMM, RankSpacePCFG, SimplePCFG
from rankspace.distributions.chains import ChainDistribution
from rankspace.distributions.contract import Distribution
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.differentiation import differentiable, differentiating
from rankspace.models.contract import Kind, Lengths, Model

Of = Literal["rank-pcfg", "simple-pcfg", "pcfg", "l-pcfg", "hmm", "rank-hmm", "lhmm"]

DISTRIBUTIONS: Mapping[str, Any] = {
    "rank-pcfg": RankSpacePCFG,
    "simple-pcfg": SimplePCFG,
    "pcfg": PCFG,
    "l-pcfg": LPCFG,
    "hmm": HMM,
    "rank-hmm": RankSpaceHMM,
    "lhmm": LHMM,
}
EMISSION = "log_emission"


class Counts(NamedTuple):
    """What a batch says about the tables: the E-step of EM."""

    tables: dict[str, Tensor]  # expected number of times that each entry is used
    log_prob: Float[Tensor, "batch"]


class Direct(Model):
    """Every table of the distribution `of` is a softmax of free logits, which begin normal with deviation `spread`.

    Of the sizes only those that the distribution has are used. For EM, add up `counts` of batches, then call
    `set_counts`.
    """

    NAME: ClassVar = "direct"
    ABOUT: ClassVar = "free logits without a network, for gradients or EM; `of` names the distribution"
    KIND: Kind = "tree"

    def __init__(
        self,
        vocabulary: int,
        of: Of = "rank-pcfg",
        nonterminals: int = 30,
        preterminals: int = 60,
        states: int = 64,
        rank: int = 16,
        spread: float = 1.0,
        eos: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            of=of,
            nonterminals=nonterminals,
            preterminals=preterminals,
            states=states,
            rank=rank,
            spread=spread,
            eos=eos,
        )
        self.of: Any = DISTRIBUTIONS[of]
        self.KIND = "chain" if issubclass(self.of, ChainDistribution) else "tree"
        sizes = {"nonterminal": nonterminals, "preterminal": preterminals, "symbol": nonterminals + preterminals}
        sizes |= {"state": states, "rank": rank, "vocab": vocabulary, "vocabulary": vocabulary}
        shapes = {name: [sizes[axis] for axis in axes] for name, axes in self.of.AXES.items()}
        self.logits = nn.ParameterDict({name: spread * torch.randn(shape) for name, shape in shapes.items()})

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        super().check_settings(settings)
        if not settings["spread"] >= 0:
            raise RankspaceError(f"direct: spread is {settings['spread']}; give 0 or more.")

    def forward(self, words: Int[Tensor, "word"] | None = None) -> Distribution:
        tables = {name: self._normalised(name, logits) for name, logits in self.logits.items() if name != EMISSION}
        logits = self.logits[EMISSION]
        wanted = logits if words is None else logits.index_select(1, words)
        tables[EMISSION] = wanted - logits.logsumexp(1, keepdim=True)
        options = self.chain_options(words) if self.KIND == "chain" else self.distribution_options()
        made: Distribution = self.of(**tables, **{"validate": False, **options})
        return made

    def distribution_options(self) -> dict[str, Any]:
        """Low-rank trees have kernels of their own."""
        return dict(self.options) if "triton" in self.of.BACKENDS else super().distribution_options()

    def tables(self) -> dict[str, Tensor]:
        """Every table, by the name of the distribution's parameter, without gradients."""
        with torch.no_grad():
            return {name: table.detach() for name, table in self().parameters.items()}

    def set_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Sets some tables to log-probabilities, or to logits; -inf is a probability of zero.

        Raises RankspaceError for a table that the distribution does not have, and ShapeError for one of another shape.
        """
        for name, table in tables.items():
            if name not in self.logits:
                raise RankspaceError(f"direct: there is no table {name!r}; there are {', '.join(self.of.AXES)}.")
            if table.shape != self.logits[name].shape:
                sizes = f"{tuple(table.shape)}, but the distribution has {tuple(self.logits[name].shape)}"
                raise ShapeError(f"direct: {name} is {sizes}; give one number for each entry.")
        with torch.no_grad():
            for name, table in tables.items():
                self.logits[name].copy_(table)

    def counts(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Counts:
        """How often each entry of each table is used in expectation, summed over the batch, and log p of each sentence.

        Impossible sentences count nothing.
        """
        with differentiating():
            posed = self.pose(differentiable(words), lengths)
            leaves = {name: table.detach().requires_grad_() for name, table in posed.distribution.parameters.items()}
            log_prob = posed.distribution.with_parameters(leaves).log_prob(posed.words, posed.lengths)
            total = log_prob.where(log_prob > -torch.inf, 0).sum()
            found = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
        whole = torch.zeros_like(self.logits[EMISSION])
        found[EMISSION] = whole.index_copy(1, posed.distinct, found[EMISSION]).detach()
        return Counts(found, log_prob.detach())

    def set_counts(self, counts: Mapping[str, Tensor], smoothing: float = 0.0) -> None:
        """The M-step: sets tables to counts plus `smoothing`, normalised. Rows without any stay as they are."""
        self.set_tables({name: self._maximised(name, count + smoothing) for name, count in counts.items()})

    def _maximised(self, name: str, count: Tensor) -> Tensor:
        total = count.sum(self._choices(name), keepdim=True)
        return torch.where(total > 0, (count / total).log(), self.logits[name].detach())

    def _normalised(self, name: str, logits: Tensor) -> Tensor:
        first = self._choices(name)[0]
        return logits.flatten(first).log_softmax(-1).view_as(logits)

    def _choices(self, name: str) -> tuple[int, ...]:
        """The axes of a table that sum to one together: its last ones."""
        return tuple(range(-self.of.JOINT.get(name, 1), 0))
