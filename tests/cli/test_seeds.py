"""Seeds at the command line: one bound for all commands, told in one line."""

import random

import numpy as np
import pytest
import torch

from cli.tiny_runs import Run
from rankspace.seeds import LARGEST_SEED

HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ["sample", "run"],
        ["evaluate", "run", "data"],
        ["show", "words", "run"],
        ["demo"],
        ["train", "synthetic", "--preset", "demo", "-o", "out"],
        ["fgg", "rank-space", "grammar.json", "--rank", "2", "-o", "out.json"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(("seed", "bound"), [(HUGE, LARGEST_SEED), (LARGEST_SEED + 1, LARGEST_SEED), (-1, 0)])
def test_what_is_no_seed(command: Run, arguments: list[str], seed: str | int, bound: int) -> None:
    """In the words of typer, which differ between its versions."""
    name = " ".join(arguments[: 2 if arguments[0] in ("show", "fgg") else 1])
    ran = command(*arguments, "--seed", str(seed))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("error: Invalid value for '--seed': ")
    assert str(bound) in ran.err
    assert ran.err.endswith(f"; see 'rankspace {name} --help'.\n")


@pytest.mark.parametrize(
    "arguments", [["demo"], ["experiment", "hmm-table2"], ["train", "synthetic", "--preset", "demo", "-o", "out"]]
)
def test_several_seeds(command: Run, arguments: list[str]) -> None:
    message = f"{arguments[0]}: --seeds has {HUGE}; give whole numbers from 0 to {LARGEST_SEED}."
    assert command(*arguments, "--seeds", f"1,{HUGE}") == (2, "", f"error: {message}\n")


def test_the_largest_seed_is_one_to_every_command(command: Run, grammar: str, data: str) -> None:
    seed = ["--seed", str(LARGEST_SEED)]
    assert command("sample", grammar, "-n", "2", *seed).code == 0
    assert command("evaluate", grammar, data, *seed).code == 0
    assert command("show", "words", grammar, *seed).code == 0


def test_every_generator_takes_it() -> None:
    for seed in (LARGEST_SEED, LARGEST_SEED * 1009 + 1009):  # as training makes the seed of a process
        assert torch.Generator().manual_seed(seed).initial_seed() == seed
    assert 0 <= np.random.default_rng([LARGEST_SEED, 1]).random() < 1
    assert 0 <= np.random.RandomState(LARGEST_SEED).rand() < 1
    assert 0 <= random.Random(LARGEST_SEED).random() < 1
