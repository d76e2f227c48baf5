"""The generic engine: exact on ragged batches, peaked weights, impossible and underflowing sentences."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from grammars import ZOO
from rankspace.bench.fgg import inside_by_hand
from rankspace.errors import GrammarError, RankspaceError, ShapeError
from rankspace.fgg import FGG, Rule, observe, sum_product, zoo
from rankspace.inference import GenericEngine, log_z, statistics
from rankspace.inference.generic import engine as engine_module
from rankspace.lowrank import to_rank_space

NAMES = list(ZOO)


def distributions(seed: int, scale: float, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Float64 softmaxes of logits of some spread; the larger, the more peaked."""
    generator = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(-1) for shape in shapes]


def pcfg(seed: int, scale: float, symbols: int = 6, vocabulary: int = 5) -> FGG:
    root, rule, emission = distributions(seed, scale, (symbols,), (symbols, symbols * symbols), (symbols, vocabulary))
    return zoo.pcfg(root, 0.5 * rule.reshape(symbols, symbols, symbols), 0.5 * emission)


def ragged(seed: int, vocabulary: int, lengths: list[int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(vocabulary, (len(lengths), max(lengths)), generator=generator)
    return words, torch.tensor(lengths)


@pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
def test_float32_keeps_the_promise(scale: float) -> None:
    """DESIGN section 4: within max(1e-4, 1e-6 |log Z|) of float64, gradients within 1e-4, also when peaked."""
    fgg = pcfg(0, scale)
    words, lengths = ragged(1, 5, [2, 3, 40, 1, 17])
    results = {}
    for dtype in (torch.float64, torch.float32):
        leaves = {name: tensor.to(dtype).requires_grad_() for name, tensor in fgg.tensors.items()}
        result = GenericEngine(fgg.to(dtype)).log_z(words, lengths, factors=leaves)
        gradients = torch.autograd.grad(result.sum(), list(leaves.values()))
        # relative to what the weights contribute: x * d log Z / dx is an expected count, at most some tens
        counts = [gradient * leaf for gradient, leaf in zip(gradients, leaves.values(), strict=True)]
        results[dtype] = result.detach().double(), torch.cat([count.detach().double().reshape(-1) for count in counts])
    expected, actual = results[torch.float64], results[torch.float32]
    assert expected[0].isfinite().all()
    bound = (1e-6 * expected[0].abs()).clamp(min=1e-4)
    assert ((actual[0] - expected[0]).abs() <= bound).all()
    torch.testing.assert_close(actual[1], expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_batch_is_what_each_sentence_gets_alone(name: str) -> None:
    case = ZOO[name]
    engine = GenericEngine(case.build(**case.parameters()))
    sentences = [[0, 1, 2, 0], [2], [1, 1], [2, 0, 1], [0]]
    together = engine.log_z(*engine.encode(sentences))
    alone = torch.cat([engine.log_z(*engine.encode([sentence])) for sentence in sentences])
    # float64: the order of a few sums differs between the two
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    backwards = engine.log_z(*engine.encode(sentences[::-1]))
    torch.testing.assert_close(backwards.flip(0), together, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "compile"),
    [*((name, lambda fgg: fgg) for name in NAMES), ("factored_hmm", to_rank_space), ("factored_pcfg", to_rank_space)],
)
def test_plain_arithmetic_is_what_scaled_arithmetic_gives(
    name: str, compile: Callable[[FGG], FGG], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short sentences need no scaling; where it is done all the same, values and gradients are the same."""
    fgg = compile(ZOO[name].build(**ZOO[name].parameters()))
    engine = GenericEngine(fgg)
    results = []
    for refuse in (False, True):
        if refuse:
            monkeypatch.setattr(engine_module, "run_plain", lambda *rest: None)
        leaves = {label: factor.detach().requires_grad_() for label, factor in fgg.tensors.items()}
        result = engine.log_z(*engine.encode([[0, 1, 2, 0], [2], [1, 1]]), factors=leaves)
        possible = result[result.isfinite()].sum()
        results.append([result, *torch.autograd.grad(possible, list(leaves.values()), allow_unused=True)])
    for plain, scaled in zip(*results, strict=True):
        # float64: the order of a few sums differs between the two
        torch.testing.assert_close(plain, scaled, rtol=1e-12, atol=1e-12)


def test_plain_arithmetic_is_refused_near_the_ends_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long sentence, whose numbers leave the range, and where a weight is zero."""
    found: list[bool] = []
    original = engine_module.run_plain
    monkeypatch.setattr(
        engine_module, "run_plain", lambda *rest: found.append((chart := original(*rest)) is not None) or chart
    )
    start, transition, emission = distributions(9, 2.0, (4,), (4, 4), (4, 6))
    fgg = zoo.hmm(start, transition, emission, torch.ones(4, dtype=torch.float64)).to(torch.float32)
    engine = GenericEngine(fgg)
    for length in (10, 300):
        assert engine.log_z(torch.zeros(1, length, dtype=torch.int64)).isfinite().all()
    zero = fgg.tensors["emission"].clone()
    zero[0, 0] = 0
    engine.log_z(torch.zeros(1, 4, dtype=torch.int64), factors={"emission": zero})
    assert found == [True, False, False]


def test_factor_of_two_words() -> None:
    """A row for each pair of words, beside a rule that looks at one; with gradients."""
    rules = [
        Rule.build("S", {"x": "A"}, [("X", "x")]),
        Rule.build("X", {"x": "A", "o": "O", "p": "O"}, [("pair", "o", "x", "p")], ["x"]),
        Rule.build("X", {"x": "A", "o": "O", "y": "A"}, [("one", "x", "o"), ("next", "y", "x"), ("X", "y")], ["x"]),
        Rule.build("X", {"x": "A", "o": "O"}, [("one", "x", "o")], ["x"]),
    ]
    pair, one, step = distributions(12, 1.0, (3, 2, 3), (2, 3), (2, 2))
    leaves = {"pair": pair.requires_grad_(), "one": one.requires_grad_(), "next": step.requires_grad_()}
    fgg = FGG.build("S", rules, {"A": 2, "O": 3}, leaves)
    sentence = [0, 2, 0, 2, 1]
    expected = sum_product(observe(fgg, sentence), "log")
    actual = GenericEngine(fgg).log_z(torch.tensor([sentence]))[0]
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
    for left, right in zip(
        torch.autograd.grad(actual, list(leaves.values())),
        torch.autograd.grad(expected, list(leaves.values())),
        strict=True,
    ):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_padding_is_never_read() -> None:
    engine = GenericEngine(pcfg(0, 1.0))
    words, lengths = ragged(2, 5, [3, 6, 2])
    poisoned = words.clone()
    for row, length in zip(poisoned, lengths.tolist(), strict=True):
        row[length:] = 10**9
    assert torch.equal(engine.log_z(poisoned, lengths), engine.log_z(words, lengths))


def test_impossible_sentences() -> None:
    """Exactly -inf, with gradients that are zero and not NaN, beside a possible sentence."""
    start, transition, end = torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([0.0, 1.0])
    emission = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # nobody emits the third word
    leaves = [leaf.double().requires_grad_() for leaf in (start, transition, emission, end)]
    engine = GenericEngine(zoo.hmm(*leaves))
    result = engine.log_z(torch.tensor([[0, 2, 1], [0, 1, 1]]))
    assert result[0] == -math.inf
    assert result[1].item() == pytest.approx(math.log(0.5 * 0.5))
    impossible = torch.autograd.grad(result[0], leaves, retain_graph=True)
    assert all(bool((gradient == 0).all()) for gradient in impossible)
    both = torch.autograd.grad(result.exp().sum(), leaves)
    assert all(bool(gradient.isfinite().all()) for gradient in both)


def test_lengths_the_grammar_cannot_produce() -> None:
    root, rule, emission = distributions(0, 1.0, (2,), (2, 25), (3, 4))
    engine = GenericEngine(zoo.split_pcfg(root, rule.reshape(2, 5, 5), emission))
    result = engine.log_z(torch.tensor([[1, 2], [3, 0], [0, 0]]), torch.tensor([1, 2, 0]))
    assert result[0] == -math.inf  # one word: no nonterminal emits
    assert result[1].isfinite()
    assert result[2] == -math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_only_way_on_is_far_below_the_largest(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two states that never change; the last word comes from the one that had become unlikely beyond all range."""
    steps = 60 if dtype == torch.float32 else 500
    start, end, stay = torch.ones(2, dtype=dtype) / 2, torch.ones(2, dtype=dtype), torch.eye(2, dtype=dtype)
    emission = torch.tensor([[0.9, 0.0], [0.001, 0.5]], dtype=dtype)
    redone: list[int] = []
    original = engine_module._in_log_space
    monkeypatch.setattr(
        engine_module, "_in_log_space", lambda *rest: redone.append(rest[0].num_sentences) or original(*rest)
    )
    leaf = emission.clone().requires_grad_()
    engine = GenericEngine(zoo.hmm(start, stay, leaf, end))
    # the engine goes from the end of a sentence to its beginning: one way round the odd word comes last, one first
    words = torch.tensor([[1] + [0] * steps, [0] * steps + [1], [0, 1] * (steps // 2) + [1]])
    result = engine.log_z(words)
    expected = steps * math.log(emission[1, 0].item()) + math.log(0.5) + math.log(0.5)
    assert result[0].item() == pytest.approx(expected, rel=1e-6)
    assert result[1].item() == pytest.approx(expected, rel=1e-6)
    assert redone == [1]  # the first sentence and no other
    result[:2].mean().backward()
    assert leaf.grad.isfinite().all()
    # d log Z / dx of a weight used n times is n / x
    torch.testing.assert_close(
        leaf.grad[1, 0] * emission[1, 0], torch.tensor(float(steps), dtype=dtype), rtol=1e-4, atol=0
    )


def test_open_words_are_summed_over() -> None:
    engine = GenericEngine(pcfg(3, 1.0, vocabulary=3))
    words, lengths = engine.encode([[0, None, 2], [1, None]])
    result = engine.log_z(words, lengths)
    for sentence, value in (((0, None, 2), result[0]), ((1, None), result[1])):
        every = [engine.log_z(*engine.encode([[w if w is not None else v for w in sentence]]))[0] for v in range(3)]
        # float64 sums of three probabilities
        torch.testing.assert_close(value.exp(), torch.stack(every).exp().sum(), rtol=1e-12, atol=0)


def test_twice_gives_the_same_bits() -> None:
    words, lengths = ragged(4, 5, [9, 4, 12])
    runs = []
    for _ in range(2):
        leaves = {name: tensor.float().requires_grad_() for name, tensor in pcfg(5, 3.0).tensors.items()}
        result = GenericEngine(pcfg(5, 3.0).to(torch.float32)).log_z(words, lengths, factors=leaves)
        runs.append([result, *torch.autograd.grad(result.sum(), list(leaves.values()))])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


def test_gradcheck() -> None:
    fgg = to_rank_space(zoo.factored_pcfg(*distributions(6, 1.0, (3,), (3, 2), (2, 3), (2, 3), (3, 4))))
    engine = GenericEngine(fgg)
    words, lengths = ragged(7, 4, [4, 2, 1])
    names = list(fgg.tensors)

    def function(*leaves: Tensor) -> Tensor:
        return engine.log_z(words, lengths, factors=dict(zip(names, leaves, strict=True)))

    assert torch.autograd.gradcheck(function, [fgg.tensors[name].clone().requires_grad_() for name in names])


def test_second_derivatives_are_refused() -> None:
    fgg = pcfg(0, 1.0)
    leaf = fgg.tensors["rule"].clone().requires_grad_()
    result = GenericEngine(fgg).log_z(torch.tensor([[0, 1, 2]]), factors={"rule": leaf})
    with pytest.raises(RankspaceError) as caught:
        torch.autograd.grad(result.sum(), leaf, create_graph=True)
    assert str(caught.value) == "log_z: second derivatives are not available; use sum_product(fgg, 'real')."


def test_large_and_small_weights() -> None:
    """Products far outside of the range of float32 on either side."""
    fgg = pcfg(8, 1.0).to(torch.float32)
    words = torch.tensor([[0, 1, 2, 3, 4, 0]])
    plain = GenericEngine(fgg).log_z(words)
    for factor in (1e30, 1e-30):
        scaled = fgg.with_factors({"rule": fgg.tensors["rule"] * factor, "emission": fgg.tensors["emission"] / factor})
        result = GenericEngine(scaled).log_z(words)
        # five rules and six words: one emission's factor is left over; float32 logs of size 100 are good to 1e-5
        torch.testing.assert_close(result, plain - math.log(factor), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("dtype", "weights"),
    [
        (torch.float32, [1e38, 3e38, 1.0]),
        (torch.float32, [1e38, 1.0, 1e-40]),
        (torch.float32, [1e-45, 1e-44, 1e-40]),
        (torch.float32, [1e25, 1e-25, 1e-30]),
        (torch.float64, [1e308, 1.0, 1e-310]),
        (torch.float64, [4e-320, 1e-310, 5e-324]),
    ],
)
def test_weights_at_the_ends_of_the_range(dtype: torch.dtype, weights: list[float]) -> None:
    leaf = torch.tensor(weights, dtype=dtype, requires_grad=True)
    fgg = FGG.build("S", [Rule.build("S", {"o": "O"}, [("w", "o")])], {"O": 3}, {"w": leaf})
    result = GenericEngine(fgg).log_z(torch.tensor([[0], [1], [2]]))
    expected = leaf.detach().double().log().to(dtype)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    total = log_z(fgg)  # over all words
    assert total.item() == pytest.approx(math.log(sum(leaf.tolist())), rel=1e-6)
    if sum(leaf.tolist()) > torch.finfo(dtype).tiny:  # otherwise the derivative, one over this, is beyond the range
        slope = torch.autograd.grad(total, leaf)[0] * leaf
        torch.testing.assert_close(slope.sum(), torch.ones((), dtype=dtype))  # posterior probabilities of the words


def test_loss_that_another_rule_would_hide() -> None:
    """Two rules feed one entry; one of them loses its part below the range, the other does not."""

    def single(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.float32)

    rules = [
        Rule.build("S", {"x": "A"}, [("pick", "x"), ("X", "x")]),
        Rule.build("X", {"x": "A", "o": "O"}, [("va", "x"), ("em", "x", "o")], ["x"]),
        Rule.build("X", {"x": "A", "o": "O"}, [("em2", "x", "o"), ("vb", "x")], ["x"]),
    ]
    emission = single([[1, 4.4e-31], [1, 4e-35]])
    factors = {"pick": single([0, 1]), "va": single([1, 0.9e-3]), "vb": single([1, 1.3e-3])}
    fgg = FGG.build("S", rules, {"A": 2, "O": 2}, factors | {"em": emission, "em2": emission.clone()})
    expected = sum_product(observe(fgg.to(torch.float64), [1]), "log").item()
    assert GenericEngine(fgg).log_z(torch.tensor([[1]])).item() == pytest.approx(expected, rel=1e-6)


def test_loss_that_becomes_decisive_levels_later() -> None:
    def vector(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float32)

    rules = [
        Rule.build("S", {"x": "T"}, [("C", "x")]),
        Rule.build("C", {"x": "T"}, [("B", "x"), ("c", "x")], ["x"]),
        Rule.build("B", {"x": "T"}, [("A", "x"), ("b", "x")], ["x"]),
        Rule.build("A", {"x": "T"}, [("f", "x")], ["x"]),
        Rule.build("A", {"x": "T"}, [("g", "x"), ("h",)], ["x"]),
    ]
    factors = {
        "f": vector(1, 2**-120),
        "g": vector(0, 2**-64),
        "h": torch.tensor(2.0**-64),
        "b": vector(2**-95, 1),
        "c": vector(2**-60, 1),
    }
    fgg = FGG.build("S", rules, {"T": 2}, factors)
    expected = sum_product(fgg.to(torch.float64), "log").item()
    assert log_z(fgg).item() == pytest.approx(expected, abs=1e-5)


def test_words_observed_twice() -> None:
    fgg = pcfg(0, 1.0)
    seen = observe(fgg, [0, 1, 2])
    torch.testing.assert_close(log_z(observe(seen, [0, 1, 2])), log_z(seen))
    assert log_z(observe(seen, [0, 1, 3])) == -math.inf
    torch.testing.assert_close(log_z(observe(observe(fgg, [0, None, 2]), [0, 1, 2])), log_z(seen))


def test_grammar_without_factors() -> None:
    fgg = FGG.build("S", [Rule.build("S", {"o": "O"}), Rule.build("S", {"o": "O", "p": "O"})], {"O": 3}, {})
    result = GenericEngine(fgg).log_z(torch.tensor([[0, 0], [1, 2]]), torch.tensor([1, 2]))
    assert result.tolist() == [0.0, 0.0]
    assert log_z(fgg).item() == pytest.approx(math.log(3 + 9))


def test_programs_are_shared_and_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = GenericEngine(pcfg(0, 1.0))
    engine.log_z(torch.zeros(3, 4, dtype=torch.int64), torch.tensor([4, 2, 3]))
    engine.log_z(torch.zeros(3, 4, dtype=torch.int64), torch.tensor([2, 3, 4]))
    assert len(engine._programs) == 1
    monkeypatch.setattr(engine_module, "MOST_PROGRAMS", 2)
    for length in (1, 2, 3, 4):
        engine.log_z(torch.zeros(1, length, dtype=torch.int64))
    assert len(engine._programs) == 2


def test_long_chain_is_stable() -> None:
    start, transition, emission = distributions(9, 2.0, (4,), (4, 4), (4, 6))
    fgg = zoo.hmm(start, transition, emission, torch.ones(4, dtype=torch.float64))
    words, _ = ragged(10, 6, [1000])
    forward, total = start, 0.0
    for word in words[0]:
        forward = (forward @ transition) * emission[:, word]
        total += forward.sum().log()
        forward = forward / forward.sum()
    for dtype in (torch.float32, torch.float64):
        result = GenericEngine(fgg.to(dtype)).log_z(words)
        assert result.item() == pytest.approx(total.item(), rel=1e-6 if dtype == torch.float32 else 1e-13)


class TestCounts:
    def test_width_by_width_parallelism_is_found(self) -> None:
        """A PCFG of n words has n widths and a root, whatever the batch."""
        engine = GenericEngine(pcfg(0, 1.0))
        for batch in (1, 8):
            found = engine.statistics(torch.zeros(batch, 20, dtype=torch.int64))
            assert found.levels == 21
            assert found.shapes == 3  # words, pairs of children, the root
            assert found.groups == 21  # one of them at each level
            assert found.items == batch * 211  # 210 spans and a root
            assert found.contractions == 41

    def test_rules_of_one_kind_are_one_group(self) -> None:
        """pi_1 to pi_4 of figure 4 multiply two rows, be they messages or words: one group at each width."""
        fgg = to_rank_space(zoo.factored_pcfg(*distributions(0, 1.0, (5,), (5, 2), (2, 5), (2, 5), (5, 3))))
        for batch in (1, 8):
            found = GenericEngine(fgg).statistics(torch.zeros(batch, 20, dtype=torch.int64))
            assert found.shapes == 5  # of sentences of at least two words
            assert found.levels == 20  # widths from 2 on, and the root
            assert found.groups == found.levels
            assert found.contractions == 39  # H and I are sent together, from all widths but the last, which sends L

    def test_contractions_grow_with_levels_not_items(self) -> None:
        for grammar in (
            pcfg(0, 1.0),
            to_rank_space(zoo.factored_pcfg(*distributions(0, 1.0, (5,), (5, 2), (2, 5), (2, 5), (5, 3)))),
        ):
            engine = GenericEngine(grammar)
            small, large = (engine.statistics(torch.zeros(b, 12, dtype=torch.int64)) for b in (1, 50))
            assert large.items == 50 * small.items
            assert large.contractions == small.contractions
            assert small.contractions <= 4 * small.levels * small.shapes
            assert small.items > small.contractions

    def test_ragged_batches_share_their_levels(self) -> None:
        engine = GenericEngine(pcfg(0, 1.0))
        lengths = torch.tensor([3, 9, 12, 5])
        found = engine.statistics(torch.zeros(4, 12, dtype=torch.int64), lengths)
        # one group of pairs per width, and a root per length that occurs
        assert found.groups <= 12 + 4

    def test_conjoined_grammar_gives_the_same_program(self) -> None:
        fgg = pcfg(0, 1.0)
        alone = statistics(observe(fgg, [0, 1, 2, 3, 4]))
        batched = GenericEngine(fgg).statistics(torch.tensor([[0, 1, 2, 3, 4]]))
        assert alone == batched


class TestPlans:
    """Which factors go into messages, which meet, and which wait until the applications are summed."""

    def plan_of_pairs(self, fgg: FGG, batch: int = 4) -> object:
        program = GenericEngine(fgg)._program([[0] * 12] * batch)
        return next(plan for plan in program.plans if len(plan.messages) == 2)

    def test_rank_space(self) -> None:
        """alpha^L = H alpha and alpha^R = I alpha are computed once per span, and the split sum is all that is left."""
        fgg = to_rank_space(zoo.factored_pcfg(*distributions(0, 1.0, (50,), (50, 8), (8, 50), (8, 50), (50, 9))))
        plan = self.plan_of_pairs(fgg)
        assert [message.labels for message in plan.messages] == [("H",), ("I",)]
        assert plan.elementwise
        assert plan.after == ()

    def test_state_space(self) -> None:
        """Eq. 6: U^T is taken out of the sum over split points."""
        plan = self.plan_of_pairs(zoo.factored_pcfg(*distributions(0, 1.0, (50,), (50, 8), (8, 50), (8, 50), (50, 9))))
        assert [message.labels for message in plan.messages] == [("V",), ("W",)]
        assert plan.elementwise
        assert [label for label, _ in plan.after] == ["U"]

    def test_dense(self) -> None:
        """The rule tensor is applied once per span, after the outer products of its children are summed."""
        plan = self.plan_of_pairs(pcfg(0, 1.0, symbols=30))
        assert [message.labels for message in plan.messages] == [(), ()]
        assert [label for label, _ in plan.after] == ["rule"]


def test_equals_the_inside_algorithm_by_hand() -> None:
    fgg = pcfg(11, 2.0)
    words = torch.tensor([[0, 1, 2, 3, 4, 4], [4, 3, 2, 1, 0, 0]])
    torch.testing.assert_close(
        GenericEngine(fgg).log_z(words), inside_by_hand(words, **fgg.tensors), rtol=1e-12, atol=1e-12
    )


class TestErrors:
    def test_recursive_grammar(self) -> None:
        with pytest.raises(GrammarError) as caught:
            log_z(pcfg(0, 1.0))
        assert str(caught.value) == (
            "generic engine: X depends on itself; observe a sentence, or use sum_product, which can go round cycles."
        )

    def test_unit_cycle_within_a_sentence(self) -> None:
        rules = [
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X", "x")]),
            Rule.build("X", {"x": "A", "y": "A"}, [("f", "x", "y"), ("X", "y")], ["x"]),
            Rule.build("X", {"x": "A", "o": "O"}, [("e", "x", "o")], ["x"]),
        ]
        ones = {"s": torch.ones(2), "f": torch.ones(2, 2) / 8, "e": torch.ones(2, 2)}
        fgg = FGG.build("S", rules, {"A": 2, "O": 2}, ones)
        with pytest.raises(GrammarError, match=r"^generic engine: X,\(0,1\) depends on itself"):
            GenericEngine(fgg).log_z(torch.tensor([[0]]))
        assert sum_product(observe(fgg, [0])).item() == pytest.approx(2 / (1 - 0.25))

    def test_start_with_endpoints(self) -> None:
        fgg = FGG.build(
            "S", [Rule.build("S", {"x": "A"}, [("f", "x")], ["x"])], {"A": 2}, {"f": torch.ones(2)}, open_start=True
        )
        with pytest.raises(GrammarError) as caught:
            log_z(fgg)
        assert str(caught.value) == "generic engine: the start symbol 'S' has endpoints; add a rule that sums them."
        with pytest.raises(GrammarError, match="the start symbol 'S' has endpoints"):
            GenericEngine(fgg, "A")

    @pytest.mark.parametrize(
        ("words", "lengths", "message"),
        [
            ([[0, 1]], [3], "log_z: lengths [3] do not fit words of shape (1, 2)."),
            ([[0, 1]], [-1], "log_z: lengths [-1] do not fit words of shape (1, 2)."),
            ([[0, 5]], [2], "log_z: sentence 0 has a word outside of 0..4 (and -1 for an open one)."),
            ([[0, -2]], [2], "log_z: sentence 0 has a word outside of 0..4 (and -1 for an open one)."),
        ],
    )
    def test_words_and_lengths(self, words: list[list[int]], lengths: list[int], message: str) -> None:
        engine = GenericEngine(pcfg(0, 1.0))
        with pytest.raises(ShapeError) as caught:
            engine.log_z(torch.tensor(words), torch.tensor(lengths))
        assert str(caught.value) == message

    @pytest.mark.parametrize(
        ("factors", "message"),
        [
            ({"emision": torch.ones(6, 5)}, "with_factors: there is no factor 'emision' to replace."),
            (
                {"emission": torch.ones(6, 9)},
                "factor 'emission' (rule pi_5 of X) has shape (6, 9) but its endpoints (N, O) have domains of sizes "
                "(6, 5); make them agree.",
            ),
            (
                {"emission": -torch.ones(6, 5)},
                "factor 'emission' (rule pi_5 of X) is negative at (0, 0) (-1.0); weights are finite and >= 0.",
            ),
            (
                {"emission": torch.full((6, 5), torch.nan)},
                "factor 'emission' (rule pi_5 of X) is NaN at (0, 0) (nan); weights are finite and >= 0.",
            ),
        ],
    )
    def test_factors(self, factors: dict[str, Tensor], message: str) -> None:
        with pytest.raises(RankspaceError) as caught:
            GenericEngine(pcfg(0, 1.0)).log_z(torch.tensor([[0, 1]]), factors=factors)
        assert str(caught.value) == message

    def test_dtype(self) -> None:
        with pytest.raises(GrammarError) as caught:
            GenericEngine(pcfg(0, 1.0).to(torch.bfloat16)).log_z(torch.tensor([[0, 1]]))
        assert str(caught.value) == "generic engine: factors are torch.bfloat16; give them as float32 or float64."


@pytest.mark.gpu
class TestOnGPU:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_equals_cpu(self, name: str, dtype: torch.dtype) -> None:
        case = ZOO[name]
        sentences = [[0, 1, 2, 0], [2], [1, 1]]
        parameters = {key: value.detach().to(dtype) for key, value in case.parameters().items()}
        cpu = GenericEngine(case.build(**parameters))
        expected = cpu.log_z(*cpu.encode(sentences))
        leaves = {key: value.cuda().requires_grad_() for key, value in parameters.items()}
        gpu = GenericEngine(case.build(**leaves))
        words, lengths = gpu.encode(sentences)
        result = gpu.log_z(words.cuda(), lengths.cuda())
        # rounding of a few dozen sums of products
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(result.cpu(), expected, rtol=tolerance, atol=tolerance)
        gradients = torch.autograd.grad(result[result.isfinite()].sum(), list(leaves.values()), allow_unused=True)
        assert all(bool(g.isfinite().all()) for g in gradients if g is not None)

    def test_twice_gives_the_same_bits(self) -> None:
        fgg = pcfg(5, 3.0, symbols=24, vocabulary=50).to(torch.float32, "cuda")
        words, lengths = ragged(4, 50, [19, 14, 22, 7] * 8)
        runs = []
        for _ in range(3):
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in fgg.tensors.items()}
            result = GenericEngine(fgg).log_z(words.cuda(), lengths.cuda(), factors=leaves)
            runs.append([result, *torch.autograd.grad(result.sum(), list(leaves.values()))])
        for other in runs[1:]:
            assert all(torch.equal(first, second) for first, second in zip(runs[0], other, strict=True))
