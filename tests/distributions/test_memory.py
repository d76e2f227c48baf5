"""Memory: what a batch is said to take is what it takes, and a lack of it is one line with the size and the remedy."""

import inspect
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
import rankspace.distributions as distributions
from rankspace.bench.profiling import PeakBytes
from rankspace.distributions import HMM, HSMM, LHMM, LPCFG, PCFG, BlockHMM, RankSpaceHMM, RankSpacePCFG, SimplePCFG
from rankspace.distributions.contract import Distribution
from rankspace.distributions.memory import bytes_asked, is_within_memory, size_text
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import MODELS
from short_memory import NoMemoryInBackward, lacking

SIZES = {"nonterminal": 40, "preterminal": 50, "symbol": 90, "rank": 64, "vocab": 300, "vocabulary": 300}
SIZES |= {"state": 200, "duration": 6, "column": 75}
TREES: list[Any] = [RankSpacePCFG, SimplePCFG, PCFG, LPCFG]
CHAINS: list[Any] = [HMM, LHMM, RankSpaceHMM, HSMM, BlockHMM]
FUNCTION = "(torch.autograd.Function):"

SAID = """\
RankSpacePCFG.log_prob: not enough memory for 4 sentences of up to 1000 words (rank 300, float32): it takes about \
4.8 GB, and 4.8 GB more could not be had; give fewer or shorter sentences at a time, or a lower rank.
SimplePCFG.mbr: not enough memory for 4 sentences of up to 900 words (50 nonterminals, float32): it takes about \
975.3 MB, and 648.7 MB more could not be had; give fewer or shorter sentences at a time, or fewer nonterminals.
HMM.log_prob: not enough memory for 2 sentences of up to 200000 words (300 states, float32): it takes about \
960.4 MB, and 480.0 MB more could not be had; give fewer or shorter sentences at a time, or fewer states.
LHMM.expected_counts: not enough memory for 4 sentences of up to 200000 words (40 states, float64): it takes about \
1.3 GB, and 256.0 MB more could not be had; give fewer or shorter sentences at a time, or fewer states, or float32.
direct.log_prob: not enough memory for 2 sentences of up to 200000 words (300 states, float32): it takes about \
2.4 GB, and 480.0 MB more could not be had; give fewer or shorter sentences at a time, or fewer states.
train: step 7: not enough memory for 2 sentences of up to 200000 words (300 states, float32): it takes about \
2.4 GB, and 480.0 MB more could not be had; lower batches.max_sentences, batches.max_tokens, batches.max_length or \
model.states.
HMM.log_prob: not enough memory for a sentence of 50000 words (300 states, float32): it takes about \
300.8 MB, and 60.0 MB more could not be had; give fewer or shorter sentences at a time, or fewer states.
"""


def made(of: Any, gradients: bool = False) -> Any:
    """Of random parameters; the words of a BlockHMM are in four blocks."""
    tables = {}
    for label, axes in of.AXES.items():
        logits, joint = torch.randn([SIZES[axis] for axis in axes]), of.JOINT.get(label, 1)
        tables[label] = logits.flatten(-joint).log_softmax(-1).view_as(logits).requires_grad_(gradients)
    others = {"block_of_word": torch.arange(300) % 4} if of is BlockHMM else {}
    return of(**tables, **others, validate=False)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("lengths", [(8,) * 4, (50, 40, 30)])
@pytest.mark.parametrize("of", TREES)
def test_what_a_tree_takes(of: Any, lengths: tuple[int, ...], gradients: bool) -> None:
    check_estimate(made(of, gradients), lengths, gradients)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("lengths", [(10,) * 4, (300, 200)])
@pytest.mark.parametrize("of", CHAINS)
def test_what_a_chain_takes(of: Any, lengths: tuple[int, ...], gradients: bool) -> None:
    check_estimate(made(of, gradients), lengths, gradients)


def check_estimate(distribution: Any, lengths: tuple[int, ...], gradients: bool) -> None:
    """Within a factor of two: temporaries of an engine are not all counted, and tables of words are as if distinct."""
    words = torch.randint(300, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(0))
    with PeakBytes() as memory:
        found = distribution.log_prob(words, lengths).sum()
        if gradients:
            found.backward()
    assert 0.5 < distribution.memory(lengths, gradients) / memory.peak < 2


def test_charts_are_what_the_docstrings_say() -> None:
    """2r numbers for each span and 3r with gradients; the rest does not grow with the square of the length."""
    tree, spans = made(RankSpacePCFG), 2000 * 2001 // 2
    assert tree.memory([2000]) / (4 * 64 * spans) == pytest.approx(2, rel=0.01)
    assert tree.memory([2000], gradients=True) / (4 * 64 * spans) == pytest.approx(3, rel=0.01)
    assert made(RankSpacePCFG).to(torch.float64).memory([2000]) == 2 * tree.memory([2000])


def test_every_query_on_sentences_tells_of_a_lack_of_memory() -> None:
    """Also those of a distribution that is yet to be written, if it is listed."""
    classes = {each for name in distributions.__all__ for each in _lineage(getattr(distributions, name))}
    assert len(classes) > 9
    assert not is_within_memory(Distribution.memory)
    for each in classes:
        for name, method in vars(each).items():
            if name.startswith("_") or name == "explain" or not inspect.isfunction(method):
                continue
            signature = inspect.signature(method)
            if "words" in signature.parameters and "NoReturn" not in str(signature.return_annotation):
                assert is_within_memory(method), f"{each.__name__}.{name} is not within_memory"


def test_every_model_tells_of_a_lack_of_memory() -> None:
    for model in MODELS.values():
        assert is_within_memory(model.pose)
        assert is_within_memory(model.log_prob)


@pytest.mark.parametrize("of", [*TREES, *CHAINS])
def test_a_lack_in_the_backward_pass_is_told_as_one_in_the_call(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution, words = made(of, gradients=True), torch.zeros(2, 5, dtype=torch.int64)
    found = distribution.log_prob(words, [5, 4]).sum()
    with pytest.raises(NotEnoughMemoryError) as late, NoMemoryInBackward():
        found.backward()
    monkeypatch.setattr(of, "_linear", lacking)
    with pytest.raises(NotEnoughMemoryError) as early:
        distribution.log_prob(words, [5, 4])
    assert str(late.value) == str(early.value)
    assert f"it takes about {size_text(distribution.memory([5, 4], gradients=True))}, and 3.8 GB" in str(late.value)
    assert isinstance(late.value.__cause__, RuntimeError)


def test_other_errors_in_the_backward_pass_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("size mismatch")

    found = made(HMM, gradients=True).log_prob(torch.zeros(1, 2, dtype=torch.int64)).sum()
    monkeypatch.setattr("rankspace.inference.chain.log_z.gradients", fail)
    with pytest.raises(RuntimeError, match="size mismatch"):
        found.backward()


def test_each_backward_pass_is_told_with_the_call_it_belongs_to() -> None:
    first, second = (made(HMM, gradients=True).log_prob(torch.zeros(1, n, dtype=torch.int64)).sum() for n in (3, 4))
    for found, length in ((first, 3), (second, 4)):
        with pytest.raises(NotEnoughMemoryError, match=rf"for a sentence of {length} words"), NoMemoryInBackward():
            found.backward()


def test_a_query_that_differentiates_tells_of_itself() -> None:
    for query in ("mbr", "span_marginals", "expected_counts"):
        with pytest.raises(NotEnoughMemoryError, match=rf"^SimplePCFG\.{query}: not enough"), NoMemoryInBackward():
            getattr(made(SimplePCFG), query)(torch.zeros(1, 4, dtype=torch.int64))


def test_an_engine_that_no_query_called_raises_what_torch_does() -> None:
    distribution = made(HMM, gradients=True)
    found = distribution._log_z(distribution._batch(torch.zeros(1, 4, dtype=torch.int64), None)).sum()
    with pytest.raises(RuntimeError, match="out of memory"), NoMemoryInBackward():
        found.backward()


def test_every_backward_pass_that_is_written_out_tells_of_a_lack_of_memory() -> None:
    """But that of the generic engine, which no query on sentences runs."""
    lines = {path: ["", *path.read_text().splitlines()] for path in Path(rankspace.__path__[0]).rglob("*.py")}
    own = [(path, before) for path, text in lines.items() for before, line in pairwise(text) if FUNCTION in line]
    assert len(own) > 12
    assert {path.parent.name for path, before in own if before != "@tell_of_lacks"} == {"generic"}


def _lineage(found: Any) -> list[type]:
    is_one = inspect.isclass(found) and issubclass(found, Distribution)
    return [each for each in found.__mro__ if issubclass(each, Distribution)] if is_one else []


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_memory_that_really_runs_out() -> None:
    script = Path(__file__).parent / "lacking.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=300)
    assert ran.stderr == ""
    assert ran.stdout == SAID


def test_queries_in_float64_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    first = MemoryError()

    def greedy(*_: Any) -> None:
        raise first

    monkeypatch.setattr(HMM, "_messages", greedy)
    with pytest.raises(NotEnoughMemoryError) as caught:
        made(HMM).surprisal(torch.zeros(1, 9, dtype=torch.int64), torch.tensor([7]))
    assert caught.value.__cause__ is first
    assert str(caught.value) == (
        "HMM.surprisal: not enough memory for a sentence of 7 words (200 states, float64): it takes about 1.2 MB; give "
        "fewer or shorter sentences at a time, or fewer states."
    )


def test_other_errors_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(HMM, "_log_z", fail)
    with pytest.raises(RuntimeError, match="size mismatch"):
        made(HMM).log_prob(torch.zeros(1, 2, dtype=torch.int64))


def test_what_torch_says() -> None:
    assert bytes_asked(RuntimeError("CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has")) == 3.5 * 2**30
    assert bytes_asked(RuntimeError("can't allocate memory: you tried to allocate 8000 bytes. Error code 12")) == 8000
    assert bytes_asked(MemoryError()) is None
    assert [size_text(size) for size in (8000, 43_210_000, 43_214_400_000)] == ["8.0 kB", "43.2 MB", "43.2 GB"]
