"""BlockHMM: the suite of chains, equality with the HMM that has the whole table of emissions, and what is its own."""

import math
from collections import Counter
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence, hmm_paths
from distributions.chain_suite import EXACT, SENTENCES, ChainSuite, check_frequencies, mask_of, padded
from rankspace.distributions import HMM, BlockHMM
from rankspace.distributions.chains import ChainDistribution

BLOCKS = torch.tensor([0, 1, 0, 1])  # words 0 and 2 are of the first block, 1 and 3 of the second


def unfolded(log_emission: Tensor, block_of_word: Tensor) -> Tensor:
    """The whole table of emissions, word by word."""
    num_states, num_blocks = len(log_emission), int(block_of_word.max()) + 1
    columns, seen = [], [0] * num_blocks
    for block in block_of_word.tolist():
        inside = torch.arange(num_states) // (num_states // num_blocks) == block
        columns.append(torch.where(inside, log_emission[:, seen[block]], -math.inf))
        seen[block] += 1
    return torch.stack(columns, 1)


def blocks_of(parameters: Parameters) -> Tensor:
    """The suite's four words, or more of them in two blocks."""
    columns = parameters["log_emission"].shape[1]
    return BLOCKS if columns == 2 else torch.arange(2 * columns) % 2


@pytest.mark.parametrize("order", ["state"])
class TestBlockHMM(ChainSuite):
    KIND = BlockHMM
    SIZES: ClassVar = {"state": 4, "vocab": 4, "column": 2}
    SHAPES: ClassVar = {
        "log_start": ("state",),
        "log_transition": ("state", "state"),
        "log_emission": ("state", "column"),
    }

    def parameters(
        self, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64, **sizes: int
    ) -> dict[str, Tensor]:
        columns = {"column": (sizes["vocab"] + 1) // 2} if "vocab" in sizes else {}
        return super().parameters(seed, scale, dtype, **sizes, **columns)

    def make(self, parameters: Parameters, order: str = "auto", **options: Any) -> ChainDistribution:
        return BlockHMM(**parameters, block_of_word=blocks_of(parameters), order=order, **options)

    def paths(self, parameters: Parameters, sentence: Sentence) -> Paths:
        """Through the states of each word's block alone: others have weight zero."""
        blocks = blocks_of(parameters)
        found = hmm_paths({**parameters, "log_emission": unfolded(parameters["log_emission"], blocks)}, sentence)
        inside = torch.ones(len(found.states), dtype=torch.bool)
        for time, word in enumerate(sentence):
            inside &= (found.states[:, time] // 2 == blocks[word]) if word is not None else inside
        return Paths(found.log_weights[inside], found.states[inside])

    def sparse(self) -> dict[str, Tensor]:
        tables = {
            "log_start": [0.4, 0.3, 0.1, 0.2],
            "log_transition": [[0.5, 0.2, 0.2, 0.1], [0.9, 0.0, 0.1, 0.0], [0.6, 0.2, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]],
            "log_emission": [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]],  # state 3 emits word 3 alone
        }
        return {name: torch.tensor(table, dtype=torch.float64).log() for name, table in tables.items()}

    def best(self, distribution: Any, words: Tensor, lengths: list[int], seen: Tensor | None = None) -> list[Any]:
        return distribution.viterbi(words, lengths, seen)

    # What is its own.

    def test_it_is_the_hmm_with_all_emissions(self, order: str) -> None:
        parameters = {name: value.requires_grad_() for name, value in self.parameters(30).items()}
        one = self.make(parameters, order)
        table = unfolded(parameters["log_emission"], BLOCKS)
        other = HMM(parameters["log_start"], parameters["log_transition"], table)
        words, lengths = padded(SENTENCES)
        torch.testing.assert_close(one.expanded().parameters["log_emission"], table)
        found, expected = one.log_prob(words, lengths), other.log_prob(words, lengths)
        torch.testing.assert_close(found, expected, **EXACT)
        leaves = list(parameters.values())
        slopes = (torch.autograd.grad(value.sum(), leaves) for value in (found, expected))
        for slope, true in zip(*slopes, strict=True):
            torch.testing.assert_close(slope, true, **EXACT)
        one, other = one.detach(), other.detach()
        for query in ("state_marginals", "filter", "surprisal", "next_word", "posterior_entropy"):
            torch.testing.assert_close(
                getattr(one, query)(words, lengths), getattr(other, query)(words, lengths), **EXACT
            )
        for mine, theirs in zip(one.viterbi(words, lengths), other.viterbi(words, lengths), strict=True):
            assert torch.equal(mine.states, theirs.states)
            torch.testing.assert_close(mine.log_joint, theirs.log_joint, **EXACT)
        moved = one.begin(2).step(torch.tensor([1, 2]))
        torch.testing.assert_close(moved.next_word(), other.begin(2).step(torch.tensor([1, 2])).next_word(), **EXACT)

    def test_posterior_samples_of_observed_words(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=35)
        words, lengths = padded(SENTENCES)
        found = distribution.sample_posterior(words, lengths, 3000, torch.Generator().manual_seed(0))
        for sentence, samples in zip(SENTENCES, found, strict=True):
            assert samples is not None
            paths, keys = self.paths(parameters, sentence), self.keys_of(samples)
            check_frequencies(Counter(keys), dict(zip(paths.keys(), paths.posterior.tolist(), strict=True)), 3000)
            weights = dict(zip(paths.keys(), paths.log_weights.tolist(), strict=True))
            true = torch.tensor([weights[key] for key in keys], dtype=torch.float64)
            torch.testing.assert_close(samples.log_joint, true, **EXACT)

    def test_marginals_of_the_block_alone(self, order: str) -> None:
        distribution, _ = self.random(order, seed=31)
        words, lengths = padded(SENTENCES)
        whole, part = distribution.state_marginals(words, lengths), distribution.block_marginals(words, lengths)
        for b, sentence in enumerate(SENTENCES):
            for time, word in enumerate(sentence):
                begin = 2 * int(BLOCKS[word])
                assert torch.equal(whole[b, time, begin : begin + 2], part[b, time])
                assert whole[b, time].sum().item() == pytest.approx(1)

    def test_all_words_observed_is_no_mask(self, order: str) -> None:
        distribution, _ = self.random(order, seed=32)
        words, lengths = padded(SENTENCES)
        seen = mask_of(SENTENCES, words)
        torch.testing.assert_close(
            distribution.log_prob(words, lengths, seen), distribution.log_prob(words, lengths), **EXACT
        )

    def test_blocks_of_different_sizes(self, order: str) -> None:
        blocks = torch.tensor([2, 0, 0, 1, 0])
        generator = torch.Generator().manual_seed(33)
        parameters = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in {"log_start": (6,), "log_transition": (6, 6), "log_emission": (6, 4)}.items()
        }
        parameters["log_emission"][:2, 3:] = -math.inf
        parameters["log_emission"][2:, 1:] = -math.inf
        parameters = {name: value.log_softmax(-1) for name, value in parameters.items()}
        one = BlockHMM(**parameters, block_of_word=blocks)
        other = HMM(**{**parameters, "log_emission": unfolded(parameters["log_emission"], blocks)})
        words = torch.tensor([[0, 1, 4, 3, 2], [4, 4, 0, 0, 1]])
        torch.testing.assert_close(one.log_prob(words), other.log_prob(words), **EXACT)
        torch.testing.assert_close(one.next_word(words), other.next_word(words), **EXACT)
        again = one.to(torch.float32)
        assert again.dtype == torch.float32
        torch.testing.assert_close(again.log_prob(words).double(), other.log_prob(words), rtol=1e-5, atol=1e-5)

    def test_what_float32_cannot_hold_is_done_again(self, order: str) -> None:
        """a^40 b in one block where states never change: the state that emits b is 1e-120 below the other by then."""
        parameters = {
            "log_start": torch.tensor([0.5, 0.5]).log(),
            "log_transition": torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]]),
            "log_emission": torch.tensor([[0.0, -math.inf], [math.log(1e-3), math.log1p(-1e-3)]]),
        }
        blocks = torch.tensor([0, 0])
        words, lengths = padded([[0] * 40 + [1], [0, 1], [0] * 200 + [1]])
        wide = {name: value.double() for name, value in parameters.items()}
        expected = BlockHMM(**wide, block_of_word=blocks, backend="autograd").log_prob(words, lengths)
        leaves = {name: value.requires_grad_() for name, value in parameters.items()}
        found = BlockHMM(**leaves, block_of_word=blocks).log_prob(words, lengths)
        assert expected[2] < -1300
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-4)
        assert all(slope.isfinite().all() for slope in torch.autograd.grad(found.sum(), list(leaves.values())))

    def test_gradients_of_the_transition_are_zero_but_in_blocks_that_occur(self, order: str) -> None:
        parameters = {name: value.requires_grad_() for name, value in self.parameters(34).items()}
        self.make(parameters, order).log_prob(torch.tensor([[0, 2, 1], [2, 0, 3]])).sum().backward()
        grad = parameters["log_transition"].grad
        assert grad is not None
        assert grad[:2].count_nonzero() == 8
        assert not grad[2:].any()

    def test_how_words_and_states_are_divided(self, order: str) -> None:
        parameters = self.parameters()
        for blocks, message in (
            (
                [0, 1, 2, 1],
                r"4 states cannot be divided evenly into the 3 blocks of block_of_word; give a multiple of 3 ",
            ),
            ([0, 3, 0, 1], r"block 2 of 4 has no words; number blocks without gaps\.$"),
            (
                [0, 1, 0, -1],
                r"block_of_word has shape \(4,\) and a block -1; give each word a block, numbered from 0\.$",
            ),
            ([], r"block_of_word has shape \(0,\); give each word a block, numbered from 0\.$"),
            (
                [0, 1, 0, 0],
                r"log_emission has 2 columns but block 0 has 3 words; give a column for each word of the la",
            ),
            (
                [0, 1],
                r"log_emission\[0, 1\] is -?\d.*, but block 0 of state 0 has 1 words; fill the columns after them ",
            ),
        ):
            with pytest.raises(ValueError, match=rf"^BlockHMM: {message}"):
                BlockHMM(**parameters, block_of_word=torch.tensor(blocks, dtype=torch.int64))
        message = (
            r"^BlockHMM: compared with one whose block_of_word differs; derivations correspond only if words are in "
        )
        one, other = self.make(parameters), BlockHMM(**parameters, block_of_word=torch.tensor([0, 0, 1, 1]))
        with pytest.raises(ValueError, match=message):
            one.posterior_kl(other, torch.tensor([[0, 1]]))

    def test_blocks_of_which_no_word_is_asked_about(self, order: str) -> None:
        """With num_blocks, some of the words alone: the words of block 0, under their numbers 0 and 1."""
        parameters = self.parameters()
        whole, words = self.make(parameters, order), torch.tensor([[0, 1, 1], [1, 0, 0]])
        for chosen, block in (([0, 2], 0), ([1, 3], 1)):
            some = BlockHMM(**parameters, block_of_word=torch.full((2,), block), num_blocks=2, validate=False)
            theirs = torch.tensor(chosen)[words]
            torch.testing.assert_close(some.log_prob(words), whole.log_prob(theirs))
            torch.testing.assert_close(some.detach().state_marginals(words), whole.state_marginals(theirs))

    def test_the_number_of_blocks(self, order: str) -> None:
        parameters = self.parameters()
        assert BlockHMM(**parameters, block_of_word=BLOCKS, num_blocks=2).blocks.num == 2
        for number, message in (
            (1, r"num_blocks is 1 but block_of_word has a block 1; number them from 0\.$"),
            (4, r"block 2 of 4 has no words; number blocks without gaps\.$"),
        ):
            with pytest.raises(ValueError, match=rf"^BlockHMM: {message}"):
                BlockHMM(**parameters, block_of_word=BLOCKS, num_blocks=number)

    def test_explain(self, order: str) -> None:
        found = self.make(self.parameters(), order).explain(torch.tensor([[0, 2, 1], [2, 0, 3]]))
        assert found == (
            "chain: state order; 2 blocks of 2 states, and of the transition the 2 blocks that occur in this batch"
        )


def test_nothing_that_was_read_is_possible() -> None:
    """No state is alive: next words have no probability, read at once or one by one, and a sentence that ends at its
    first word can be drawn."""
    start, stay = torch.tensor([0.0, -math.inf]), torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    chain = BlockHMM(start, stay, torch.zeros(2, 1), torch.tensor([0, 1]))
    words = torch.tensor([[0, 1]])
    nothing = [[-math.inf, -math.inf]]
    assert chain.next_word(words).tolist() == chain.expanded().next_word(words).tolist() == nothing
    assert chain.begin(1).step(words[:, 0]).step(words[:, 1]).next_word().tolist() == nothing
    assert chain.begin(0).step(words[:0, 0]).next_word().shape == (0, 2)
    drawn = BlockHMM(start, stay, torch.zeros(2, 1), torch.tensor([0, 1]), eos=0).sample(2, 3)
    assert (drawn.words.tolist(), float(drawn.lost_mass)) == ([[0], [0]], 0.0)
