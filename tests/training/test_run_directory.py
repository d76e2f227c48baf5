"""Run directories: what is written can be loaded, after a kill too, and damage is told in one line."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
from rankspace.data import Vocabulary
from rankspace.errors import FormatError, RankspaceError
from rankspace.models import create
from rankspace.training import Config, RunDirectory, Trained
from rankspace.training.checkpoints import Checkpoint, read_checkpoint
from rankspace.training.config import config_text

WORDS = Vocabulary(("<unk>", "<eos>", "the", "dog", "sleeps", "N", "years"))
TREE = {"nonterminals": 3, "preterminals": 4, "rank": 2, "size": 4}
CHAIN = {"states": 4, "rank": 3, "size": 4, "eos": 1}


def made(path: Path, name: str = "rank-pcfg", seed: int = 1, step: int = 0, **settings: Any) -> RunDirectory:
    torch.manual_seed(seed)
    settings = settings or (TREE if name == "rank-pcfg" else CHAIN)
    model = create(name, vocabulary=len(WORDS), **settings)
    card = {
        "model": {"name": name, "settings": model.settings},
        "data": {"preprocessing": {"lower_case": True, "numbers": "digits"}},
    }
    return RunDirectory.create(path, config_text(Config()), card, WORDS, Checkpoint(model.state_dict(), {"step": step}))


def test_the_checkpoint_comes_back(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    first = dict(run.read("last").weights)
    trained = rankspace.load(run.path)
    assert {name: tensor.tolist() for name, tensor in trained.model.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in first.items()
    }
    assert not trained.model.training
    assert trained.config == Config()
    assert trained.card["format"] == "rankspace run"
    assert trained.notice is None


def test_loading_does_not_touch_random_numbers(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    before = torch.random.get_rng_state()
    rankspace.load(run.path)
    assert torch.equal(before, torch.random.get_rng_state())


def weight(step: int) -> Checkpoint:
    state = {"step": step, "epoch": 0, "batches": {}, "schedule": {}, "sums": []}
    return Checkpoint({"w": torch.full((2,), float(step))}, state, {"m": torch.tensor([step])})


def test_last_becomes_previous(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    for step in (1, 2, 3):
        run.save(weight(step))
    run.save_chosen("best", weight(2))
    assert [run.read(name).step for name in ("last", "previous", "best")] == [3, 2, 2]
    assert run.read("last", resuming=True).resuming["m"].tolist() == [3]
    assert sorted(os.listdir(run.path / "checkpoints")) == ["best", "last", "previous"]


def test_before_there_is_a_best_one_the_last_stands_for_it(tmp_path: Path) -> None:
    run = made(tmp_path / "run", step=7)
    assert [run.read(name).step for name in ("best", "previous")] == [7, 7]


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_kill_between_renamings_leaves_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    run = made(tmp_path / "run")
    for step in (1, 2):
        run.save(weight(step))
    run.save_chosen("best", weight(1))
    left = [renames]
    rename = os.rename

    def killing(source: Path, target: Path) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        rename(source, target)

    monkeypatch.setattr(os, "rename", killing)
    with pytest.raises(KeyboardInterrupt):
        run.save(weight(3))
    left[0] = min(renames, 1)
    with pytest.raises(KeyboardInterrupt):
        run.save_chosen("best", weight(3))
    monkeypatch.undo()
    again = RunDirectory.open(run.path)
    assert again.read("last").step == 2
    assert again.read("best").step == 1
    again.save(weight(4))
    again.save_chosen("best", weight(4))
    assert again.read("last").step == again.read("best").step == 4


def test_what_stands_for_the_best_checkpoint(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    assert [run.name_of(name) for name in ("best", "last", "previous")] == ["last", "last", "last"]
    run.save(weight(2))
    assert [run.name_of(name) for name in ("best", "last", "previous")] == ["last", "last", "previous"]
    run.save_chosen("held-out", weight(3))
    assert (run.name_of("best"), run.read("best").step) == ("held-out", 3)
    run.save_chosen("best", weight(4))
    assert (run.name_of("best"), run.read("best").step) == ("best", 4)


def test_metrics_after_a_step_are_forgotten(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    for step in (1, 2, 3):
        run.add_metrics({"step": step, "split": "train"})
        run.add_metrics({"step": step, "split": "valid"})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4')  # as a kill leaves it
    run.forget_metrics_after(2, evaluated_step=2)
    found = [(record["step"], record["split"]) for record in run.metrics()]
    assert found == [(1, "train"), (1, "valid"), (2, "train"), (2, "valid")]
    run.forget_metrics_after(2, evaluated_step=1)  # a kill came between the evaluation and its checkpoint
    assert [(record["step"], record["split"]) for record in run.metrics()] == found[:3]


def test_the_final_record_stays_until_another_takes_its_place(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    run.add_metrics({"step": 3, "split": "valid"})
    run.end_metrics({"step": 3, "split": "valid"})  # data.valid and data.test may be one split
    run.forget_metrics_after(2, evaluated_step=2)
    assert run.metrics() == [{"step": 3, "split": "valid", "final": True}]
    run.add_metrics({"step": 4, "split": "valid"})
    run.end_metrics({"step": 4, "split": "valid"})
    assert run.metrics() == [{"step": 4, "split": "valid"}, {"step": 4, "split": "valid", "final": True}]


def test_resuming_wants_more_than_weights(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    run.save(weight(1))
    folder = run.path / "checkpoints" / "last"
    run.save(Checkpoint(weight(2).weights, weight(2).state))
    with pytest.raises(FormatError) as raised:
        run.read("last", resuming=True)
    remedy = "choose another with --checkpoint, or allow to take one with --fallback"
    message = f"{folder}/state.json: names no {{}}, so training cannot go on from it; {remedy}."
    assert str(raised.value) == message.format("optimiser.safetensors")
    found, name, notice = run.read_good("last", resuming=True)
    assert (found.step, name, notice) == (1, "previous", f"{raised.value} Took the previous one, of step 1.")
    run.save(Checkpoint(weight(3).weights, {"step": 3}, weight(3).resuming))
    with pytest.raises(FormatError) as raised:
        run.read("last", resuming=True)
    assert str(raised.value) == message.format("epoch, batches, schedule, sums")
    assert run.read("last").step == 3


def test_files_are_on_the_disk_before_they_take_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(tmp_path / "run")
    calls: list[str] = []
    replace, fsync = os.replace, os.fsync

    def replacing(source: Path, target: Path) -> None:
        calls.append(Path(target).name)
        replace(source, target)

    def flushing(handle: int) -> None:
        calls.append("flush")
        fsync(handle)

    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.setattr(os, "fsync", flushing)
    run.update_card(results={})
    run.write_config(run.config)
    run.forget_metrics_after(0, 0)
    assert calls == ["flush", "card.json", "flush", "config.toml", "flush", "metrics.jsonl"]


def damaged(run: RunDirectory, how: str) -> None:
    folder = run.path / "checkpoints" / "last"
    state, weights = folder / "state.json", folder / "model.safetensors"
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-5])
    elif how == "missing":
        weights.unlink()
    elif how == "later":
        state.write_text(json.dumps({**json.loads(state.read_text()), "version": 2}))
    elif how == "foreign":
        state.write_text('{"step": 1}')
    elif how == "cut card":
        state.write_text(state.read_text()[:20])
    elif how == "no card":
        state.unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "{0}/model.safetensors: is truncated or changed: its hash is not that of state.json; {1}."),
        ("missing", "{0}/model.safetensors: is missing; {1}."),
        (
            "later",
            "{0}/state.json: has version 2, but this rankspace reads 1; use the rankspace that wrote it.",
        ),
        ("foreign", "{0}/state.json: is no card of a checkpoint; {1}."),
        ("cut card", "{0}/state.json: is damaged (no JSON); {1}."),
        ("no card", "{0}: is no checkpoint: it has no state.json; {1}."),
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, how: str, message: str) -> None:
    run = made(tmp_path / "run")
    model = create("rank-pcfg", vocabulary=len(WORDS), **TREE)
    run.save(Checkpoint(model.state_dict(), {"step": 5}))
    damaged(run, how)
    remedy = "choose another with --checkpoint, or allow to take one with --fallback"
    message = message.format(run.path / "checkpoints" / "last", remedy)
    with pytest.raises(FormatError) as raised:
        rankspace.load(run.path, "last")
    assert str(raised.value) == message
    with pytest.warns(UserWarning, match="Took the previous one, of step 0") as warned:
        trained = rankspace.load(run.path, "last", fallback=True)
    assert trained.notice == str(warned[0].message) == f"{message} Took the previous one, of step 0."


@pytest.mark.parametrize(
    "change",
    [lambda lines: lines[:-2], lambda lines: [lines[-1], *lines[:-1]], lambda lines: [*lines, "cat\n"]],
    ids=["truncated", "moved", "appended"],
)
@pytest.mark.parametrize("has_hash", [True, False])
def test_a_damaged_vocabulary(tmp_path: Path, change: Callable[[list[str]], list[str]], has_hash: bool) -> None:
    """A run without a hash, of an earlier version, is known by the number of its words alone."""
    run = made(tmp_path / "run")
    file, card = run.path / "vocabulary.txt", run.path / "card.json"
    words = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(words)))
    message = f"{file}: is truncated or changed: its hash is not that of card.json; bring it back, or train again."
    if not has_hash:
        card.write_text(json.dumps({name: entry for name, entry in run.card.items() if name != "files"}))
        num = len(change(words))
        message = f"{file}: has {num} words, but the model of the run 7; bring it back, or train again."
        if num == len(words):
            assert len(rankspace.load(run.path).vocabulary) == num
            return
    with pytest.raises(FormatError) as raised:
        rankspace.load(run.path)
    assert str(raised.value) == message


def test_a_missing_vocabulary(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    (run.path / "vocabulary.txt").unlink()
    with pytest.raises(FormatError) as raised:
        rankspace.load(run.path)
    assert str(raised.value) == f"{run.path / 'vocabulary.txt'}: is missing; bring it back, or train again."


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as raised:
        rankspace.load(tmp_path)
    assert str(raised.value) == f"{tmp_path}: is no run: it has no card.json; make one with rankspace train."
    (tmp_path / "card.json").write_text('{"format": "rankspace prepared data"}')
    with pytest.raises(FormatError) as raised:
        rankspace.load(tmp_path)
    assert str(raised.value) == f"{tmp_path / 'card.json'}: is no card of a run; make one with rankspace train."


def test_a_checkpoint_by_another_name(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    with pytest.raises(FormatError) as raised:
        rankspace.load(run.path, "newest")
    assert (
        str(raised.value) == f"{run.path}: there is no checkpoint 'newest'; there are best, held-out, last, previous."
    )


def test_a_checkpoint_of_another_run(tmp_path: Path) -> None:
    run, other = made(tmp_path / "run"), made(tmp_path / "other", rank=3, nonterminals=3, preterminals=4, size=4)
    shutil.rmtree(run.path / "checkpoints" / "last")
    shutil.copytree(other.path / "checkpoints" / "last", run.path / "checkpoints" / "last")
    with pytest.raises(FormatError) as raised:
        rankspace.load(run.path)
    assert str(raised.value) == (
        f"{run.path}: the checkpoint does not fit rank-pcfg: ranks is (3, 4), not (2, 4); it belongs to another run."
    )


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    made(tmp_path / "run")
    with pytest.raises(FormatError) as raised:
        made(tmp_path / "run")
    assert str(raised.value) == f"{tmp_path / 'run'}: exists already; go on with --resume, or choose another name."


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return rankspace.load(made(tmp_path_factory.mktemp("tree") / "run").path)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return rankspace.load(made(tmp_path_factory.mktemp("chain") / "run", "rank-hmm").path)


class TestTrained:
    def test_words_are_encoded_as_the_training_text_was(self, tree: Any, chain: Any) -> None:
        sentences = [["The", "cat", "sleeps"], ["10", "years"]]
        words, lengths = tree.encode(sentences)
        assert (words.tolist(), lengths) == ([[2, 0, 4], [5, 6, 0]], [3, 2])
        words, lengths = chain.encode(sentences)
        assert (words.tolist(), lengths) == ([[2, 0, 4, 1], [5, 6, 1, 0]], [4, 3])

    def test_trees_have_the_words_as_given_in_the_order_given(self, tree: Any) -> None:
        sentences = [["The", "dog", "sleeps", "10", "years"], ["Dog"], [], ["the", "dog"]] * 3
        whole = tree.parse(sentences)
        assert [None if t is None else t.words for t in whole] == [tuple(s) or None for s in sentences]
        assert whole[1].nodes == ((0, 1, None),)
        tree.max_tokens = 6
        assert tree.parse(sentences) == whole

    def test_log_prob_in_parts_is_that_of_each(self, tree: Any, chain: Any) -> None:
        for trained in (tree, chain):
            trained.max_tokens = 8
            sentences = [["the", "dog", "sleeps"], ["the"], ["dog", "sleeps", "N", "years", "the"], ["dog", "dog"]]
            expected = [trained.model.log_prob(*trained.encode([words])).item() for words in sentences]
            assert trained.log_prob(sentences) == pytest.approx(expected, abs=1e-5)  # other shapes, other rounding

    def test_surprisal_sums_to_log_prob(self, tree: Any, chain: Any) -> None:
        sentences = [["the", "dog", "sleeps"], ["the"], []]
        for trained in (tree, chain):
            found = trained.surprisal(sentences)
            assert [len(row) for row in found] == [4, 2, 1]
            assert [-sum(row) for row in found] == pytest.approx(trained.log_prob(sentences), abs=1e-5)

    def test_samples_depend_on_the_seed_alone(self, tree: Any, chain: Any) -> None:
        for trained in (tree, chain):
            drawn = trained.sample(20, 8, seed=3)
            assert drawn == trained.sample(20, 8, seed=3) != trained.sample(20, 8, seed=4)
            assert all(word in WORDS and word != "<eos>" for s in drawn for word in s.words) or trained is tree
            assert all((s.tree is None) == (trained is chain or s.cut) for s in drawn)

    def test_the_distribution_has_the_whole_vocabulary(self, chain: Any) -> None:
        assert chain.distribution().vocabulary == len(WORDS)
        assert chain.distribution().eos == 1

    def test_what_is_asked_of_the_wrong_kind(self, tree: Any, chain: Any) -> None:
        with pytest.raises(RankspaceError) as raised:
            chain.parse([["the", "dog"]])
        assert str(raised.value) == "parse: rank-hmm is a chain; this is for grammars, which have trees."

    def test_text_is_no_list_of_words(self, tree: Any) -> None:
        for query in ("parse", "span_marginals", "log_prob", "surprisal"):
            for given in ("the dog", [["the"], "the dog"]):
                with pytest.raises(RankspaceError) as raised:
                    getattr(tree, query)(given)
                assert str(raised.value) == (
                    f"{query}: 'the dog' is text; give lists of words, such as [['the', 'dog']]."
                )

    def test_a_compound_grammar_has_no_surprisal(self, tree: Any) -> None:
        compound = Trained(create("c-pcfg", vocabulary=len(WORDS), nonterminals=2, preterminals=3), tree.vocabulary, {})
        with pytest.raises(RankspaceError) as raised:
            compound.surprisal([["the", "dog"]])
        assert str(raised.value) == (
            "surprisal: c-pcfg makes a grammar for each sentence from all of its words, so no word has a probability "
            "given those before it alone; take a grammar that is not compound, or a chain."
        )


def test_a_checkpoint_keeps_bits(tmp_path: Path) -> None:
    values = torch.tensor([1e-45, -0.0, torch.inf, 1 / 3])
    folder = tmp_path / "one"
    run = made(tmp_path / "run")
    run.save(Checkpoint({"w": values, "same": values}, {"step": 1, "loss": 1 / 3}))
    os.rename(run.path / "checkpoints" / "last", folder)
    found = read_checkpoint(folder)
    assert torch.equal(found.weights["w"].view(torch.int32), values.view(torch.int32))
    assert found.state["loss"] == 1 / 3
