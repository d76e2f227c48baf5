"""What every distribution over trees must fulfil where sentences are read from left to right: part of `TreeSuite`."""

import math
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from distributions.tree_enumeration import TreeModel, derivations
from rankspace.distributions import dense_parses
from rankspace.inference.tree import prefixes

EXACT = {"rtol": 1e-9, "atol": 1e-11}  # sums of some hundred products in float64
PREFIXES = ((3, 0, 1), (1,), (2, 2, 0, 1), (), (0, 3))
NUMBERS = [len(prefix) for prefix in PREFIXES]
WORDS = torch.tensor([[*prefix, *[99] * (5 - len(prefix))] for prefix in PREFIXES])


def accepted(rule: Tensor, emission: Tensor, prefix: tuple[int, ...], rounds: int = 400) -> Tensor:
    """[nonterminal] -> p(its sentence begins with a prefix), by the grammar that Bar-Hillel's construction makes of it
    and an automaton that reads the prefix and then anything: its least solution, iterated from zero."""
    size, n = len(prefix) + 1, rule.shape[0]
    symbols = rule.new_zeros(size, size, n + len(emission))  # p(a symbol leads from one state of it to another)
    for at, word in enumerate(prefix):
        symbols[at, at + 1, n:] = emission[:, word]
    symbols[-1, -1, n:] = emission.sum(1)
    for _ in range(rounds):
        symbols[:, :, :n] = torch.einsum("abc,ikb,kjc->ija", rule, symbols, symbols)
    return symbols[0, -1, :n]


def charts_in_logarithms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The charts in logarithms that prefixes are read from, from now on: by the functions that make them, of low-rank
    and of dense trees."""
    asked: list[str] = []
    for module, name in ((prefixes, "log_chart"), (dense_parses, "log_inside")):
        make = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *its, make=make, name=name: asked.append(name) or make(*its))
    return asked


def all_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the linear engines say of every sentence, whatever their charts have."""
    judged, charted = prefixes.lost_sentences, dense_parses.scaled_chart

    def lost_sentences(*its: Any) -> Any:
        lost, has_zeros = judged(*its)
        return torch.ones_like(lost), has_zeros

    def scaled_chart(*its: Any) -> Any:
        found = charted(*its)
        return found._replace(lost=torch.ones_like(found.lost))

    monkeypatch.setattr(prefixes, "lost_sentences", lost_sentences)
    monkeypatch.setattr(dense_parses, "scaled_chart", scaled_chart)


class PrefixSuite:
    model: ClassVar[TreeModel]

    def short(self, nonterminal: float = 0.15) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        """Parameters of a grammar whose children are rarely nonterminals; and its root, rule tensor and emission."""
        n, p, generator = self.model.nonterminals, self.model.preterminals, torch.Generator().manual_seed(3)

        def draw(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, dtype=torch.float64)

        sides = []
        for _ in range(2):
            inner, words = draw(n, n), draw(n, p)
            inner, words = inner / inner.sum(1, keepdim=True), words / words.sum(1, keepdim=True)
            sides.append(torch.cat([nonterminal * inner, (1 - nonterminal) * words], 1))
        root, emission = draw(n), draw(p, 4)
        root, emission = root / root.sum(), emission / emission.sum(1, keepdim=True)
        linear = {"log_root": root, **self.model.independent(*sides), "log_emission": emission}
        rule = sides[0][:, :, None] * sides[1][:, None, :]
        return {name: value.log() for name, value in linear.items()}, root, rule, emission

    def made(self, parameters: dict[str, Tensor] | None = None, **options: Any) -> Any:
        return self.model.make(**(parameters or self.model.parameters()), **options)

    def test_prefixes_by_an_automaton(self, order: str, dtype: torch.dtype) -> None:
        parameters, root, rule, emission = self.short()
        given = {name: value.to(dtype) for name, value in parameters.items()}
        found = self.made(given, order=order).log_prefix(WORDS, NUMBERS)
        close = {"rel": 1e-9, "abs": 1e-12} if dtype == torch.float64 else {"rel": 1e-6, "abs": 1e-6}
        assert found.shape == (5, 6)
        assert found.dtype == dtype
        for b, prefix in enumerate(PREFIXES):
            for t in range(len(prefix) + 1):
                expected = (root @ accepted(rule, emission, prefix[:t])).log().item()
                assert found[b, t].item() == pytest.approx(expected, **close)
            assert not found[b, len(prefix) + 1 :].any()

    @pytest.mark.parametrize("scale", [1.5, 20.0])
    def test_what_begins_so_ends_there_or_goes_on(self, order: str, scale: float) -> None:
        """Sentences of these words and of these and one more, whichever it is: also where many trees never end."""
        parameters = self.model.parameters(seed=5, scale=scale)
        made = self.made(parameters, order=order)
        log_prefix = made.log_prefix(WORDS, NUMBERS)
        for b, prefix in enumerate(PREFIXES):
            ends = derivations(self.model, prefix).log_z(parameters)
            longer = torch.tensor([[*prefix, word] for word in range(4)])
            ways = torch.cat([ends[None], made.log_prefix(longer)[:, -1]])
            torch.testing.assert_close(log_prefix[b, len(prefix)], ways.logsumexp(0), **EXACT)

    def test_surprisal_and_the_next_word(self, order: str, dtype: torch.dtype) -> None:
        made = self.made(self.model.parameters(dtype=dtype), order=order)
        close = EXACT if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
        log_prefix, surprisal = made.log_prefix(WORDS, NUMBERS), made.surprisal(WORDS, NUMBERS)
        following = made.next_word(WORDS, NUMBERS)
        assert surprisal.shape == (5, 5)
        assert following.shape == (5, 4)
        assert surprisal.dtype == following.dtype == dtype
        for b, prefix in enumerate(PREFIXES):
            n = len(prefix)
            torch.testing.assert_close(surprisal[b, :n], log_prefix[b, :n] - log_prefix[b, 1 : n + 1], **close)
            assert not surprisal[b, n:].any()
            longer = made.log_prefix(torch.tensor([[*prefix, word] for word in range(4)]))[:, -1]
            torch.testing.assert_close(following[b], longer - log_prefix[b, n], **close)
            alone = torch.tensor([prefix], dtype=torch.int64).view(1, n)
            torch.testing.assert_close(made.log_prefix(alone)[0], log_prefix[b, : n + 1], **close)
            torch.testing.assert_close(made.next_word(alone)[0], following[b], **close)

    def test_prefixes_in_portions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = self.made(self.model.parameters(dtype=torch.float64))
        expected = made.log_prefix(WORDS, NUMBERS)
        for module in ("logarithms", "dense_tree.prefixes"):
            monkeypatch.setattr(f"rankspace.inference.{module}.CHUNK", 40)
        torch.testing.assert_close(made.log_prefix(WORDS, NUMBERS), expected, **EXACT)

    def test_surprisals_to_the_end_sum_to_log_prob(self, order: str, dtype: torch.dtype) -> None:
        made = self.made(self.model.parameters(dtype=dtype), order=order)
        found, log_prob = made.surprisal(WORDS, NUMBERS, end=True), made.log_prob(WORDS, NUMBERS)
        assert found.shape == (5, 6)
        close = EXACT if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(found.sum(1), -log_prob, **close)
        without = made.surprisal(WORDS, NUMBERS)
        for b, n in enumerate(NUMBERS):
            assert torch.equal(found[b, :n], without[b, :n])
            assert found[b, n].isfinite() == (n > 1)  # no sentence has fewer words than two
            assert not found[b, n + 1 :].any()

    def test_no_prefixes(self) -> None:
        made = self.made()
        assert made.log_prefix(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 4)
        assert made.surprisal(torch.zeros(0, 0, dtype=torch.int64)).shape == (0, 0)
        assert made.next_word(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 4)

    def test_prefixes_have_no_gradient(self) -> None:
        given = {name: value.requires_grad_() for name, value in self.model.parameters().items()}
        made = self.made(given)
        for found in (made.log_prefix(WORDS, NUMBERS), made.surprisal(WORDS, NUMBERS), made.next_word(WORDS, NUMBERS)):
            assert not found.requires_grad

    def test_a_word_that_cannot_follow_on(self, order: str) -> None:
        parameters = self.model.parameters()
        emission = parameters["log_emission"].clone()
        emission[:, 3] = -math.inf
        parameters["log_emission"] = emission.log_softmax(-1)
        made = self.made(parameters, order=order)
        words = torch.tensor([[0, 3, 1], [0, 1, 2]])
        surprisal = made.surprisal(words)
        assert surprisal[0].isinf().tolist() == [False, True, True]
        assert surprisal[0, 1:].tolist() == [math.inf, math.inf]
        assert surprisal[1].isfinite().all()
        assert made.log_prefix(words)[0, 2:].tolist() == [-math.inf, -math.inf]
        following = made.next_word(words)
        assert (following[0] == -math.inf).all()
        assert following[1].isinf().tolist() == [False, False, False, True]

    @pytest.mark.parametrize("scale", [1.0, 6.0])
    def test_charts_are_in_logarithms_where_something_is_lost(
        self, order: str, scale: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And there alone; the numbers are the same, also of a forbidden word and of short sentences."""
        parameters = self.model.parameters(scale=scale)
        emission = parameters["log_emission"].clone()
        emission[:, 3] = -math.inf
        parameters["log_emission"] = emission.log_softmax(-1)
        made = self.made(parameters, order=order)
        words = torch.randint(3, (5, 20), generator=torch.Generator().manual_seed(5))
        words[0, 13] = 3
        asked = charts_in_logarithms(monkeypatch)

        def found() -> list[Tensor]:
            return [query(words, [20, 1, 4, 2, 0]) for query in (made.surprisal, made.log_prefix, made.next_word)]

        linear = found()
        assert asked == []
        all_are_lost(monkeypatch)
        for one, other in zip(linear, found(), strict=True):
            torch.testing.assert_close(one, other, **EXACT)
        assert len(asked) == 3
        assert bool((linear[0] == math.inf).any())

    @pytest.mark.parametrize("rare", [1e-2, 1e-30])
    def test_a_prefix_far_below_the_likely_ones(self, order: str, rare: float) -> None:
        """a^40 b, where what can go on with b has 1e-80 or 1e-1200 times the mass of the other one after a^40."""
        left = torch.tensor([[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]], dtype=torch.float64)
        right = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)
        emission = torch.tensor([[1, 0], [rare, 1 - rare]], dtype=torch.float64)
        linear = {"log_root": torch.full((2,), 0.5).double(), **self.model.independent(left, right)}
        linear["log_emission"] = emission
        made = self.made({name: value.log() for name, value in linear.items()}, order=order)
        found = made.log_prefix(torch.tensor([[0] * 40 + [1]]))[0]
        # 0.5 for the nonterminal, and 0.5 for each word from the third on that the sentence does have
        assert found[:3].tolist() == pytest.approx(
            [0, math.log(0.5 + 0.5 * rare), math.log(0.5 + 0.5 * rare**2)], rel=1e-9, abs=1e-12
        )
        assert found[41].item() == pytest.approx(40 * math.log(0.5) + 40 * math.log(rare) + math.log1p(-rare), rel=1e-9)
        assert made.next_word(torch.tensor([[0] * 40]))[0, 1].item() == pytest.approx(
            (found[41] - found[40]).item(), rel=1e-9
        )

    def two_that_never_mix(self, left: Tensor, right: Tensor, root: Tensor, dtype: torch.dtype, **options: Any) -> Any:
        """Two nonterminals, two preterminals that emit two words alike."""
        emission = torch.full((2, 2), 0.5, dtype=torch.float64)
        linear = {"log_root": root, **self.model.independent(left, right), "log_emission": emission}
        return self.made({name: value.log().to(dtype) for name, value in linear.items()}, **options)

    @pytest.mark.parametrize("to_words", [0.0, 1e-30, 1e-7, 1e-3])
    def test_deep_left_edges(self, order: str, dtype: torch.dtype, to_words: float) -> None:
        """However rarely the leftmost child is a word, in the end it is: both words are as probable. Unless never."""
        rest = 1 - to_words
        left = torch.tensor([[rest, 0, to_words, 0], [0, rest, 0, to_words]], dtype=torch.float64)
        right = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)
        made = self.two_that_never_mix(left, right, torch.full((2,), 0.5).double(), dtype, order=order)
        found = made.log_prefix(torch.tensor([[0, 1]]))[0].tolist()
        if to_words:
            assert found == pytest.approx([0, math.log(0.5), 2 * math.log(0.5)], abs=1e-6)
        else:
            assert found == [0, -math.inf, -math.inf]

    @pytest.mark.parametrize("scale", [6.0, 20.0, 100.0])
    def test_peaked_grammars_in_float32_stay_probable(self, order: str, scale: float) -> None:
        """Rows sum to one within 1e-7 there, and left edges may be 1e10 deep: nothing is multiplied by that."""
        for seed in range(8):
            made = self.made(self.model.parameters(seed, scale, torch.float32), order=order)
            first = made.next_word(torch.zeros(1, 0, dtype=torch.int64))[0]
            assert first.exp().sum().item() == pytest.approx(1, abs=1e-5)
            found = made.log_prefix(WORDS, NUMBERS)
            for b, n in enumerate(NUMBERS):
                assert found[b, 0] == 0
                assert (found[b, 1 : n + 1] <= found[b, :n]).all()

    def test_what_comes_to_no_further_word(self, order: str) -> None:
        """The second nonterminal begins with itself alone. It is half of the right children of the first one, so that
        half of the trees come to their first word and to no other; words that nothing leads to change nothing."""
        left = torch.tensor([[0.0, 0, 1, 0], [0, 1, 0, 0]], dtype=torch.float64)
        right = torch.tensor([[0.0, 0.5, 0.5, 0], [0, 0, 1, 0]], dtype=torch.float64)
        made = self.two_that_never_mix(left, right, torch.tensor([1.0, 0]).double(), torch.float64, order=order)
        words = torch.tensor([[0]])
        assert made.log_prefix(words)[0].tolist() == pytest.approx([0, math.log(0.5)])
        assert made.next_word(words)[0].exp().tolist() == pytest.approx([0.25, 0.25])
        assert made.log_prob(words).item() == -math.inf

    def test_prefixes_are_said_to_be_in_float64(self) -> None:
        made = self.made(self.model.parameters(dtype=torch.float32))
        for query in ("log_prefix", "surprisal", "next_word"):
            assert "float64" in made._shortage(query, WORDS, NUMBERS).sizes

    def test_parameters_that_are_nan_are_told(self) -> None:
        parameters = self.model.parameters()
        parameters["log_root"] = parameters["log_root"].clone()
        parameters["log_root"][1] = math.nan
        made = self.made(parameters, validate=False)
        for query in ("log_prefix", "surprisal", "next_word"):
            with pytest.raises(ValueError, match=rf"\.{query}: log_root\[1\] is NaN; check what it was computed from"):
                getattr(made, query)(WORDS, NUMBERS)
