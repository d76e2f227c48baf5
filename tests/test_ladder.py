"""The ladder: enumeration = sum-product = conjunction = rank space = generic engine, in value and gradient."""

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor

import grammars
from grammars import ZOO, Case, exact_cpd, words_in_order
from rankspace.fgg import FGG, enumerate_derivations, observe, sum_product, z_by_enumeration
from rankspace.inference import GenericEngine, log_z
from rankspace.lowrank import is_b_fgg, merged_factor, to_rank_space

# float64: values are sums of at most some thousands of products of some tens of numbers, each good to 1e-16. Relative,
# with a floor for gradients that are zero but for rounding.
TOLERANCE = 1e-9
FLOOR = 1e-14


def check_same(results: dict[str, Tensor], leaves: list[Tensor]) -> None:
    """All results agree with the first one, and so do their gradients."""
    (first, expected), *rest = results.items()
    slopes = gradients(expected, leaves)
    for name, result in rest:
        torch.testing.assert_close(
            result, expected, rtol=TOLERANCE, atol=0, msg=lambda text, n=name: f"{first} and {n}: {text}"
        )
        for slope, other in zip(slopes, gradients(result, leaves), strict=True):
            torch.testing.assert_close(
                other,
                slope,
                rtol=TOLERANCE,
                atol=FLOOR * float(slope.abs().max()) if slope.numel() else 0,
                msg=lambda text, n=name: f"gradients of {first} and {n}: {text}",
            )


def gradients(result: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    if not result.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(result, leaves, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if slope is None else slope for slope, leaf in zip(found, leaves, strict=True)]


def z_by_filtering(fgg: FGG, sentence: tuple[int, ...], max_size: int) -> Tensor:
    """Z of a sentence from the grammar as it stands: its derivations with that many words, their words fixed."""
    total = torch.zeros((), dtype=fgg.dtype)
    for derivation in enumerate_derivations(fgg, max_size=max_size):
        words = words_in_order(derivation, fgg.grammar.nonterminals)
        if len(words) == len(sentence):
            graph = derivation.factor_graph(fgg)
            for node, word in zip(words, sentence, strict=True):
                graph.factors.append((torch.eye(graph.sizes[node], dtype=fgg.dtype)[word], (node,)))
            total = total + graph.sum_product()
    return total


def assume_few_derivations(fgg: FGG) -> None:
    """Leaves out grammars whose enumeration takes long."""
    assume(sum(1 for _ in enumerate_derivations(fgg, limit=101)) <= 100)


def rank_space_of(case: Case, fgg: FGG) -> FGG:
    cpds = {}
    for key in case.decomposed:
        rule = next((rule for rule in fgg.rules if rule.name == key), None)
        cpds[key] = exact_cpd(merged_factor(fgg, rule) if rule else fgg.tensors[key])
    return to_rank_space(fgg, cpds)


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str) -> None:
    case = ZOO[name]
    parameters = case.parameters()
    leaves = list(parameters.values())
    fgg = case.build(**parameters)
    engine = GenericEngine(fgg)
    together = engine.log_z(*engine.encode(case.sentences)).exp()  # one ragged batch
    for i, sentence in enumerate(case.sentences):
        seen = observe(fgg, sentence)
        results = {
            "enumeration": z_by_enumeration(seen).z,
            "filtering": z_by_filtering(fgg, sentence, max_size=2 * len(sentence) + 3),
            "real": sum_product(seen),
            "log": sum_product(seen, "log").exp(),
            "engine": log_z(seen).exp(),
            "batch": together[i],
        }
        if is_b_fgg(fgg):
            ranked = rank_space_of(case, fgg)
            ranked_engine = GenericEngine(ranked)
            results["rank space"] = sum_product(observe(ranked, sentence, "O"))
            results["rank-space engine"] = ranked_engine.log_z(*ranked_engine.encode([sentence]))[0].exp()
        check_same(results, leaves)


@given(recipe=grammars.b_fggs(recursive=False))
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_random_b_fggs(recipe: grammars.Recipe) -> None:
    grammar = recipe.build()
    assume_few_derivations(grammar.fgg)
    assert is_b_fgg(grammar.fgg)
    ranked = to_rank_space(grammar.fgg, grammar.cpds)
    check_same(
        {
            "enumeration": z_by_enumeration(grammar.fgg).z,
            "real": sum_product(grammar.fgg),
            "log": sum_product(grammar.fgg, "log").exp(),
            "engine": log_z(grammar.fgg).exp(),
            "rank space": sum_product(ranked),
            "rank-space engine": log_z(ranked).exp(),
        },
        grammar.leaves,
    )


@given(recipe=grammars.b_fggs(recursive=True))
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_random_recursive_b_fggs_with_sentences(recipe: grammars.Recipe) -> None:
    grammar = recipe.build()
    fgg = grammar.fgg
    ranked = to_rank_space(fgg, grammar.cpds)
    engines = {"engine": GenericEngine(fgg, "O"), "rank-space engine": GenericEngine(ranked, "O")}
    for sentence in [(0,), (1, 0), (0, 1, 1)]:
        seen = observe(fgg, sentence, "O")
        assume_few_derivations(seen)
        results = {
            "enumeration": z_by_enumeration(seen).z,
            # one word: one rule with a word, its parent and at most three children
            "filtering": z_by_filtering(fgg, sentence, max_size=5) if len(sentence) == 1 else None,
            "real": sum_product(seen),
            "rank space": sum_product(observe(ranked, sentence, "O")),
            "rank space of the sentence": sum_product(to_rank_space(seen)),
        }
        for name, engine in engines.items():
            results[name] = engine.log_z(*engine.encode([sentence]))[0].exp()
        check_same({name: value for name, value in results.items() if value is not None}, grammar.leaves)
