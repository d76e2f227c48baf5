"""Compound models: a grammar for each sentence, made from a Gaussian latent vector, and its inference network."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rankspace.distributions.contract import Distribution
from rankspace.distributions.memory import within_memory
from rankspace.inference.ragged import Ragged, lengths_of, ragged
from rankspace.models.contract import Lengths, Model, Posed
from rankspace.models.networks import embedding, initialise_matrices


class Gaussian(NamedTuple):
    """Independent normal distributions."""

    mean: Float[Tensor, "batch latent"]
    log_variance: Float[Tensor, "batch latent"]

    def draw(self) -> Float[Tensor, "batch latent"]:
        """One sample, differentiable in mean and variance."""
        return self.mean + (self.log_variance / 2).exp() * torch.randn_like(self.mean)

    def divergence(self) -> Float[Tensor, "batch"]:
        """KL(q || standard normal)."""
        return (self.log_variance.exp() + self.mean.square() - 1 - self.log_variance).sum(1) / 2


class InferenceNetwork(nn.Module):
    """q(z | sentence): word embeddings, a bidirectional LSTM, the largest value of each number over the sentence."""

    def __init__(self, vocabulary: int, size: int, latent: int) -> None:
        super().__init__()
        self.words = embedding(vocabulary, size, "normal")
        self.lstm = nn.LSTM(size, size, bidirectional=True)
        self.parameters_of_z = nn.Linear(2 * size, 2 * latent)
        initialise_matrices(self.parameters_of_z)

    def forward(self, words: Int[Tensor, "batch length"], layout: Ragged) -> Gaussian:
        """A layout lies in memory as a packed sequence does: nothing is padded. A sentence without words has zeros."""
        pooled = self.words.new_zeros(len(layout.lengths), 2 * self.words.shape[1])
        if layout.num_tokens:
            steps = torch.tensor(layout.alive[1:-1])
            rows = self.lstm(PackedSequence(self.words[layout.pack(words)], steps))[0].data
            highest = layout.unpack(rows, -torch.inf).amax(1)
            pooled = highest.where(highest > -torch.inf, 0)
        return Gaussian(*self.parameters_of_z(pooled).chunk(2, 1))


class CompoundModel(Model):
    """A grammar whose tables are made from z ~ N(0, 1): p(x) = E_z p(x | z), which has no closed form.

    `loss` is -log p(x | z) + KL(q(z | x) || N(0, 1)) of each sentence x. In training z is one reparameterised sample of
    q, so that the loss is, in expectation, an upper bound of -log p(x), and the KL is multiplied by `kl_weight`, an
    attribute that training may raise from 0 to 1. In evaluation the weight is 1, and z is the mean of q: this gives the
    figure that is customarily reported as a perplexity, which is no bound. With the setting `samples` it is the mean
    over as many samples of q instead, a bound in expectation. `log_prob` is the same with the other sign and weight 1.

    `pose` gives every sentence its own distribution, by the same z (the mean in evaluation, whatever `samples` is), and
    `forward` the one of z = 0, the mean of the prior; `sampler` draws z from the prior.
    """

    KIND = "tree"
    BOUND: ClassVar = True
    GRAMMAR: ClassVar[type[nn.Module]]  # gives the tables of some words under z
    DISTRIBUTION: ClassVar[Any]  # what the tables are parameters of

    def __init__(self, samples: int | None, **sizes: int) -> None:
        super().__init__(**sizes, samples=samples)
        self.kl_weight = 1.0
        self.inference = InferenceNetwork(sizes["vocabulary"], sizes["size"], sizes["latent"])
        self.grammar = self.GRAMMAR(**sizes)

    def given(self, z: Float[Tensor, "*batch latent"], words: Int[Tensor, "*batch word"] | None = None) -> Distribution:
        """The distribution under a latent vector, or those of several sentences; of some words, or of all."""
        made: Distribution = self.DISTRIBUTION(*self.grammar(words, z), validate=False, **self.distribution_options())
        return made

    def forward(self, words: Int[Tensor, "word"] | None = None) -> Distribution:
        return self.given(self.inference.words.new_zeros(self.settings["latent"]), words)

    def infer(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Gaussian:
        """q(z | sentence) of each sentence. Padding is not read."""
        found: Gaussian = self.inference(words, ragged(lengths_of(self.NAME, words, lengths), words.device))
        return found

    @within_memory
    def pose(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Posed:
        q = self.infer(words, lengths)
        return self._posed(words, lengths, q.draw() if self.training else q.mean)

    @within_memory
    def log_prob(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Float[Tensor, "batch"]:
        log_likelihood, divergence = self._terms(words, lengths)
        return log_likelihood - divergence

    @within_memory
    def loss(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Float[Tensor, "batch"]:
        log_likelihood, divergence = self._terms(words, lengths)
        return (self.kl_weight if self.training else 1) * divergence - log_likelihood

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        grammar: Any = self.grammar
        yield from grammar.through_networks()

    def sampler(self, generator: torch.Generator | None = None) -> Distribution:
        device = self.inference.words.device
        z = torch.randn(self.settings["latent"], generator=generator, device=generator.device if generator else device)
        return self.given(z.to(self.inference.words))

    def _terms(self, words: Tensor, lengths: Lengths) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
        """log p(x | z), or its mean over samples, and the divergence."""
        q, samples = self.infer(words, lengths), self.settings["samples"]
        drawn = 1 if self.training else samples or 0
        found = [self._log_likelihood(words, lengths, q.draw()) for _ in range(drawn)]
        found = found or [self._log_likelihood(words, lengths, q.mean)]
        return torch.stack(found).mean(0), q.divergence()

    def _log_likelihood(self, words: Tensor, lengths: Lengths, z: Tensor) -> Float[Tensor, "batch"]:
        posed = self._posed(words, lengths, z)
        return posed.distribution.log_prob(posed.words, posed.lengths)

    def _posed(self, words: Int[Tensor, "batch length"], lengths: Lengths, z: Float[Tensor, "batch latent"]) -> Posed:
        """Each sentence has the words of its own as its vocabulary, by the places where they first occur."""
        numbers = lengths_of(self.NAME, words, lengths)
        layout = ragged(numbers, words.device)
        own = layout.unpack(layout.pack(words))
        if not layout.num_tokens:
            own = own.new_zeros(len(own), 1)  # a vocabulary has a word
        first = (own[:, :, None] == own[:, None, :]).to(torch.uint8).argmax(2)
        return Posed(self.given(z, own), first[:, : layout.longest], numbers, own)
