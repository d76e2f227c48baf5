"""What single models say about their tables, and the networks they are made of."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.distributions import LHMM
from rankspace.models import MODELS, Model, create, describe
from rankspace.models.networks import (
    JoinedLinear,
    JoinedNetwork,
    ResidualNetwork,
    embedding,
    kept_rows,
    log_softmax_dropped,
)
from rankspace.training import synthetic_data

SIZES = {"vocabulary": 7, "size": 6}


def spread_out(name: str, **settings: Any) -> Model:
    """No two weights are alike, biases are not zero, and rounding is no reason for a difference."""
    torch.manual_seed(0)
    model = create(name, **SIZES, **settings).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_().mul_(0.7)
    return model


def h(model: Model, network: str, x: Tensor) -> Tensor:
    """h(x) = g1(g2(W x)), g(y) = ReLU(B ReLU(A y)) + y, each map with a bias."""
    of_network = [weight for name, weight in model.named_parameters() if name.startswith(f"{network}.")]
    (w, w0), *layers = zip(of_network[::2], of_network[1::2], strict=True)
    y = x @ w.T + w0
    for (a, a0), (b, b0) in zip(layers[::2], layers[1::2], strict=True):
        y = ((y @ a.T + a0).clamp(min=0) @ b.T + b0).clamp(min=0) + y
    return y


def test_joining_is_concatenation() -> None:
    torch.manual_seed(0)
    linear, rows, z = JoinedLinear(4, 5, 3), torch.randn(6, 4), torch.randn(2, 3)
    weight = torch.cat([linear.of_row.weight, linear.of_latent.weight], 1)
    joined = torch.cat([rows.expand(2, 6, 4), z[:, None].expand(2, 6, 3)], 2)
    torch.testing.assert_close(linear(rows, z), joined @ weight.T + linear.of_row.bias)
    assert JoinedNetwork(4, 3)(rows, z).shape == (2, 6, 4)
    assert JoinedNetwork(4, 3)(rows, z[0]).shape == (6, 4)


def test_without_a_latent_vector_a_joined_network_is_residual() -> None:
    joined, plain = JoinedNetwork(4), ResidualNetwork(4)
    plain.load_state_dict(dict(zip(plain.state_dict(), joined.state_dict().values(), strict=True)))
    rows = torch.randn(3, 4)
    torch.testing.assert_close(joined(rows), plain(rows))


def test_embeddings_begin_as_they_should() -> None:
    torch.manual_seed(0)
    assert abs(embedding(200, 300, "normal").std().item() - 1) < 0.02
    assert abs(embedding(200, 300).std().item() - (2 / 500) ** 0.5) < 0.001


@pytest.mark.parametrize("start", ["states", "embedding"])
def test_biases_begin_as_they_should(start: str) -> None:
    """In both ways with the same matrices, and every bias of a network is meant."""
    sizes: Any = {"nonterminals": 3, "preterminals": 4, "rank": 5, "vocabulary": 50, "size": 16, "start": start}
    torch.manual_seed(0)
    zero = dict(create("rank-pcfg", **sizes).named_parameters())
    torch.manual_seed(0)
    uniform = dict(create("rank-pcfg", **sizes, biases="uniform").named_parameters())
    assert any(name.endswith("bias") for name in zero)
    for name, weight in zero.items():
        if name.endswith("bias"):
            assert not bool(weight.any())
            assert bool(uniform[name].all())
        else:
            assert torch.equal(weight, uniform[name])
    biases = torch.cat([weight.detach() for name, weight in uniform.items() if name.endswith("bias")])
    assert float(biases.abs().max()) <= 0.25
    assert float(biases.std()) == pytest.approx(0.25 / 3**0.5, rel=0.15)  # of 200 numbers


def test_dropped_choices_have_probability_zero() -> None:
    torch.manual_seed(0)
    logits = torch.randn(200, 5)
    assert torch.equal(log_softmax_dropped(logits, 0.9, False), logits.log_softmax(1))
    found = log_softmax_dropped(logits, 0.9, True)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(200))
    assert 0 < (found == -torch.inf).double().mean() < 0.9


def test_a_choice_that_is_impossible_already_does_not_save_a_row() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]]).expand(500, 4)
    found = log_softmax_dropped(logits, 0.9, True)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(500))
    assert (found[:, 3] == -torch.inf).all()
    whole = (found[:, :3] > -torch.inf).all(1)
    assert whole.double().mean() > 0.6  # 0.9^3 of the rows would lose all
    torch.testing.assert_close(found[whole], logits.log_softmax(1)[whole])


def test_a_start_in_ranks_is_never_left_without_a_way() -> None:
    torch.manual_seed(0)
    model = create("rank-hmm", states=3, rank=4, dropout=0.5, start="ranks", **SIZES).train()
    for _ in range(200):
        loss = model.loss(torch.tensor([[1, 2, 3]])).sum()
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        assert loss.isfinite()
        assert all(slope.isfinite().all() for slope in slopes)


def test_kept_rows_are_as_many_of_each_group_and_in_order() -> None:
    torch.manual_seed(0)
    table = torch.arange(12.0)[:, None]
    assert kept_rows(table, 0.5, False, 3) is table
    assert kept_rows(table, 0.0, True, 3) is table
    seen = set()
    for _ in range(50):
        kept = kept_rows(table, 0.5, True, 3)[:, 0].reshape(3, 2)
        assert (kept // 4 == torch.arange(3.0)[:, None]).all()
        assert (kept.diff(dim=1) > 0).all()
        seen.update(kept.flatten().tolist())
    assert len(seen) == 12


@pytest.mark.parametrize(
    ("num_rows", "dropout", "num_kept"), [(500, 0.1, 450), (4096, 0.1, 3712), (2048, 0.1, 1856), (600, 0.01, 576)]
)
def test_of_many_rows_a_multiple_of_64_is_kept(num_rows: int, dropout: float, num_kept: int) -> None:
    """The nearest; of fewer than 512 any number."""
    kept = kept_rows(torch.arange(float(num_rows))[:, None], dropout, True)
    assert kept.shape == (num_kept, 1)
    assert bool((kept.diff(dim=0) > 0).all())


@pytest.mark.parametrize("name", [name for name in MODELS if name != "direct"])
def test_no_table_begins_all_but_certain(name: str) -> None:
    """The entropy of each is, on average, more than half of that of a uniform one."""
    torch.manual_seed(0)
    small = {"nonterminals": 40, "preterminals": 60, "rank": 30, "states": 96, "blocks": 4, "size": 256}
    sizes = {setting: size for setting, size in small.items() if setting in describe(name).settings}
    distribution = create(name, vocabulary=200, **sizes).eval()()
    for label, table in distribution.parameters.items():
        rows = table.detach().flatten(-distribution.JOINT.get(label, 1))
        entropy = -(rows.exp() * rows.where(rows > -torch.inf, 0)).sum(-1).mean()
        assert entropy > math.log(rows.shape[-1]) / 2, label


@pytest.mark.parametrize("start", ["states", "ranks"])
def test_rank_pcfg_is_that_of_appendix_a(start: str) -> None:
    """One projection to ranks for head, left and right; one embedding of a preterminal for words and children."""
    model = spread_out("rank-pcfg", nonterminals=3, preterminals=4, rank=5, start=start)
    weights, tables = dict(model.named_parameters()), model().parameters
    num = 3 + (start == "ranks")
    symbols, ranks, words = weights["symbols"], weights["ranks"], weights["emission.words.weight"]  # w_l, u_H, u_E
    children = [ranks @ h(model, network, symbols).T for network in ("left_network", "right_network")]  # f_2, f_3
    if start == "ranks":
        children = [logits.index_fill(1, torch.tensor([3]), -torch.inf) for logits in children]
    else:
        root = h(model, "root.network", symbols[:num]) @ weights["root.start"][0]  # h_1, u_S
        torch.testing.assert_close(tables["log_root"], root.log_softmax(0))
    head = h(model, "head_network", symbols[:num]) @ ranks.T  # f_1
    emission = h(model, "emission.network", symbols[num:]) @ words.T + weights["emission.words.bias"]  # h_2
    torch.testing.assert_close(tables["log_head"], head.log_softmax(1))
    torch.testing.assert_close(tables["log_left"], children[0].log_softmax(1))
    torch.testing.assert_close(tables["log_right"], children[1].log_softmax(1))
    torch.testing.assert_close(tables["log_emission"], emission.log_softmax(1))


@pytest.mark.parametrize("start", ["states", "ranks"])
def test_rank_hmm_is_that_of_appendix_b(start: str) -> None:
    """Two embeddings of a state meet one projection to ranks."""
    model = spread_out("rank-hmm", states=4, rank=5, start=start)
    weights, tables = dict(model.named_parameters()), model().parameters
    ranks, emitters = weights["ranks"], weights["emitters"]  # u_H, u_W
    to_state = (ranks @ weights["to_states"].T).log_softmax(1)  # w_v
    if start == "states":
        logits = h(model, "start.network", weights["starts"]) @ weights["start.start"][0]  # h_1, w_s, u_P
        torch.testing.assert_close(tables["log_start"], logits.log_softmax(0))
    to_rank = (weights["from_states"] @ ranks.T).log_softmax(1)  # w_u
    emission = (emitters @ h(model, "word_network", weights["words"]).T).log_softmax(1)  # h_2, w_w
    torch.testing.assert_close(tables["log_state_to_rank"], to_rank)
    torch.testing.assert_close(tables["log_rank_to_state"][:, :4], to_state)
    torch.testing.assert_close(tables["log_emission"], emission)


def test_dropout_of_the_rank_hmm_is_on_start_and_both_factors() -> None:
    """Entries of U and V are left out, and numbers of the start embeddings; words are as in evaluation."""
    model = spread_out("rank-hmm", states=40, rank=30, dropout=0.25)
    whole, weights = model().parameters, dict(model.named_parameters())
    assert all(torch.equal(table, whole[name]) for name, table in model().parameters.items())
    drawn = model.train()().parameters
    for name in ("log_state_to_rank", "log_rank_to_state"):
        kept = drawn[name] > -torch.inf
        assert abs(kept.double().mean().item() - 0.75) < 0.05  # four standard errors
        expected = whole[name].masked_fill(~kept, -torch.inf).log_softmax(1)
        torch.testing.assert_close(drawn[name], expected)
    (slope,) = torch.autograd.grad(drawn["log_start"][0], weights["starts"], retain_graph=True)
    kept = slope != 0
    assert abs(kept.double().mean().item() - 0.75) < 0.12  # four standard errors
    logits = h(model, "start.network", weights["starts"] * kept / 0.75) @ weights["start.start"][0]
    torch.testing.assert_close(drawn["log_start"], logits.log_softmax(0))
    assert torch.equal(drawn["log_emission"], whole["log_emission"])
    again = model().parameters
    assert not any(torch.equal(again[name], table) for name, table in drawn.items() if name != "log_emission")


@pytest.mark.parametrize("start", ["states", "ranks"])
def test_whole_ranks_and_states_are_left_out_of_the_rank_hmm(start: str) -> None:
    settings = {"rank_dropout": 0.5, "state_dropout": 0.75, "dropout": 0.0}
    model = spread_out("rank-hmm", states=8, rank=6, start=start, **settings)
    whole, drawn = model().parameters, model.train()().parameters
    own = int(start == "ranks")  # the start is a state that stays
    assert drawn["log_state_to_rank"].shape == (2 + own, 3)
    assert drawn["log_rank_to_state"].shape == (3, 2 + own)
    assert drawn["log_start"].shape == (2 + own,)
    for name, table in drawn.items():
        torch.testing.assert_close(table.logsumexp(-1), torch.zeros_like(table[..., 0]))
        assert name == "log_emission" or not torch.equal(table, whole[name])
    kept = torch.cdist(drawn["log_emission"].double(), whole["log_emission"].double()).argmin(1)  # the ranks that stay
    assert len(kept.unique()) == 3
    torch.testing.assert_close(drawn["log_emission"], whole["log_emission"][kept])
    if own:
        assert bool((drawn["log_rank_to_state"][:, -1] == -torch.inf).all())


@pytest.mark.parametrize("start", ["states", "ranks", "embedding"])
def test_dropout_of_the_rank_pcfg_is_on_the_embeddings_of_symbols(start: str) -> None:
    """The same numbers are left out wherever a symbol stands: as a model whose embeddings lack them."""
    model = create("rank-pcfg", nonterminals=3, preterminals=4, rank=5, dropout=0.5, start=start, **SIZES).train()
    words = torch.arange(4)
    torch.manual_seed(1)
    found = model(words).parameters
    torch.manual_seed(1)
    with torch.no_grad():
        model.symbols.copy_(torch.nn.functional.dropout(model.symbols, 0.5))
    expected = model.eval()(words).parameters
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each)
    assert not torch.allclose(found["log_head"], model.train()(words).parameters["log_head"])


def test_word_dropout_of_the_rank_hmm_is_on_what_the_network_gives() -> None:
    model = spread_out("rank-hmm", states=4, rank=30, dropout=0.0, word_dropout=0.25)
    whole, drawn = model().parameters, model.train()().parameters
    assert [name for name in whole if not torch.equal(whole[name], drawn[name])] == ["log_emission"]
    hidden = h(model, "word_network", model.words)
    (slope,) = torch.autograd.grad(drawn["log_emission"].sum(), model.emitters)
    assert slope.shape == model.emitters.shape
    torch.manual_seed(3)
    again = model().parameters["log_emission"]
    torch.manual_seed(3)
    kept = torch.nn.functional.dropout(hidden, 0.25)
    torch.testing.assert_close(again, (model.emitters @ kept.T).log_softmax(1))


def test_n_pcfg_rules_are_a_softmax_over_all_pairs() -> None:
    model = create("n-pcfg", nonterminals=2, preterminals=3, **SIZES)
    weights = dict(model.named_parameters())
    logits = weights["grammar.nonterminals"] @ weights["grammar.rules.pairs.of_row.weight"].T
    logits = logits + weights["grammar.rules.pairs.of_row.bias"]
    torch.testing.assert_close(model().parameters["log_rule"], logits.log_softmax(1).reshape(2, 5, 5))


def test_tn_pcfg_has_three_projections() -> None:
    model = create("tn-pcfg", nonterminals=2, preterminals=3, rank=4, **SIZES)
    weights, tables = dict(model.named_parameters()), model().parameters
    for side in ("left", "right"):
        hidden = (weights["symbols"] @ weights[f"{side}.first.weight"].T + weights[f"{side}.first.bias"]).relu()
        torch.testing.assert_close(tables[f"log_{side}"], (weights[f"{side}.ranks"] @ hidden.T).log_softmax(1))
    hidden = (weights["symbols"][:2] @ weights["head.first.weight"].T + weights["head.first.bias"]).relu()
    torch.testing.assert_close(tables["log_head"], (hidden @ weights["head.ranks"].T).log_softmax(1))


def test_forms_of_the_low_rank_hmm() -> None:
    torch.manual_seed(0)
    features = create("lhmm", states=5, rank=3, form="features", **SIZES)
    tables = create("lhmm", states=5, rank=3, form="tables", **SIZES)
    tables.load_state_dict(features.state_dict())
    left = features.from_states @ features.ranks.T
    right = features.ranks @ features.to_states.T
    product = left.exp() @ right.exp()
    found = features()
    assert isinstance(found, LHMM)
    assert_leads(found, product / product.sum(1, keepdim=True))
    assert_leads(tables(), left.softmax(1) @ right.softmax(1))


def assert_leads(found: LHMM, rows: Tensor) -> None:
    """From each state to the next and, by the last row, to the first."""
    torch.testing.assert_close(found.to_dense().parameters["log_transition"].exp(), rows[:-1])
    torch.testing.assert_close(found.parameters["log_start"].exp(), rows[-1])


@pytest.mark.parametrize(("states", "rank"), [(1000, 300), (4000, 2000)])
def test_features_begin_with_ranks_that_are_unlike_and_equally_likely(states: int, rank: int) -> None:
    """Ranks that begin alike are slow to part, and where some begin likelier than others they soon take all."""
    torch.manual_seed(0)
    model = create("lhmm", vocabulary=7, states=states, rank=rank, size=64)
    with torch.no_grad():
        of_ranks = model().parameters["log_state_to_rank"].exp()
    assert effective(of_ranks.mean(0)) > 0.98 * rank
    assert float((of_ranks - of_ranks.mean(0)).abs().mean()) > 0.05 / rank


def test_training_leaves_many_ranks_in_use() -> None:
    """With networks before its features, whose outputs share a large mean, the model is down to six of 32 ranks here:
    those that begin likelier draw more states to them, and are likelier still."""
    torch.manual_seed(0)
    sentences = synthetic_data(600, max_length=15)["train"]
    model = create("lhmm", vocabulary=len(sentences.vocabulary), states=64, rank=32, size=64)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for numbers in torch.randint(len(sentences), (120, 32)).tolist():
        chosen = [torch.tensor(sentences[number]) for number in numbers]
        words, lengths = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True), [len(each) for each in chosen]
        optimiser.zero_grad()
        (model.loss(words, lengths).sum() / sum(lengths)).backward()
        optimiser.step()
    with torch.no_grad():
        assert effective(model().parameters["log_state_to_rank"].exp().mean(0)) > 9


def effective(probabilities: Tensor) -> float:
    """How many equally likely choices have the entropy of these."""
    return float(torch.special.entr(probabilities).sum().exp())


def test_leaving_out_ranks_and_states() -> None:
    lhmm = create("lhmm", states=5, rank=8, dropout=0.5, state_dropout=0.4, **SIZES)
    found = lhmm.train()()
    assert (found.sizes["rank"], found.sizes["state"]) == (4, 3)
    found = lhmm.eval()()
    assert (found.sizes["rank"], found.sizes["state"]) == (8, 5)
    hmm = create("hmm", states=10, dropout=0.25, **SIZES)
    assert hmm.train()().sizes["state"] == 8
    assert hmm.eval()().sizes["state"] == 10


def test_a_start_in_ranks_is_a_state_that_nothing_leads_to() -> None:
    hmm = create("rank-hmm", states=5, rank=3, start="ranks", **SIZES).eval()()
    assert hmm.parameters["log_start"].tolist() == [-torch.inf] * 5 + [0.0]
    assert (hmm.parameters["log_rank_to_state"][:, -1] == -torch.inf).all()
    pcfg = create("rank-pcfg", nonterminals=2, preterminals=3, rank=4, start="ranks", **SIZES)()
    assert pcfg.parameters["log_root"].tolist() == [-torch.inf, -torch.inf, 0.0]
    assert (pcfg.parameters["log_left"][:, 2] == -torch.inf).all()
    assert (pcfg.parameters["log_right"][:, 2] == -torch.inf).all()
