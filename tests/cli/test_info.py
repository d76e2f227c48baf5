"""`rankspace info`: runs, models, presets, and what is installed."""

import json
from pathlib import Path

import pytest
import torch

from cli.tiny_runs import NO_RUN, Run, make_run
from rankspace import __version__
from rankspace.models import describe
from rankspace.models.registry import MODELS
from rankspace.training.config import flat, load_preset, preset_names


def test_what_is_installed(command: Run) -> None:
    ran = command("info", "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert (found["rankspace"], found["torch"]) == (__version__, torch.__version__)
    assert found["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert set(found["packages"]) == {"matplotlib", "nltk", "tensorly", "triton", "tensorboard", "wandb"}
    rows = [line.split() for line in command("info").result.splitlines()]
    assert ["rankspace", __version__] in rows
    assert ["threads", str(torch.get_num_threads())] in rows


def test_models(command: Run) -> None:
    found = json.loads(command("info", "--models", "--json").result)["models"]
    assert [each["name"] for each in found] == list(MODELS)
    assert found[0] == {
        "name": "rank-pcfg",
        "kind": "tree",
        "description": describe("rank-pcfg").about,
        "settings": describe("rank-pcfg").settings,
    }
    text = command("info", "--models").result
    assert "rank-pcfg (tree): low-rank PCFG in rank space" in text
    assert "    nonterminals 4,500, preterminals 9,000, rank 1,000, size 256" in text


def test_presets(command: Run) -> None:
    found = {each["name"]: each for each in json.loads(command("info", "--presets", "--json").result)["presets"]}
    assert list(found) == preset_names()
    assert found["demo"]["config"] == flat(load_preset("demo"))
    assert "model.rank" in found["demo"]["changed"]
    assert "demo: rank-pcfg\n    data.source synthetic:" in command("info", "--presets").result


class TestRun:
    def test_json(self, command: Run, grammar: str) -> None:
        found = json.loads(command("info", grammar, "--json").result)
        card = json.loads(Path(grammar, "card.json").read_text())
        assert {name: found[name] for name in card} == card
        assert found["num_weights"] == 3 + 3 * 5 + 2 * 5 * 7 + 4 * 8
        assert found["checkpoints"] == {"best": {"step": 7}, "last": {"step": 7}}
        assert found["config"]["model.of"] == "rank-pcfg"

    def test_for_people(self, command: Run, grammar: str) -> None:
        rows = [line.split() for line in command("info", grammar).result.splitlines()]
        assert ["model", "direct,", "120", "weights"] in rows
        assert ["train", "4", "14"] in rows
        assert ["valid,", "best", "-", "12.50", "-", "-", "-"] in rows
        assert ["steps", "7"] in rows
        options = "lower case yes, numbers digits, removed words ., removed tags ."
        assert ["preprocessing", *options.split()] in rows
        assert ["last", "7", "whole"] in rows

    def test_precision(self, command: Run, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", "direct", of="hmm", states=2, eos=1)
        card = json.loads((run / "card.json").read_text())
        assert ["precision", "auto"] in [line.split() for line in command("info", str(run)).result.splitlines()]
        both = [{"step": 0, "precision": "medium"}, {"step": 1200, "precision": "highest"}]
        for told, expected in ((both[:1], "medium"), (both, "medium, highest after step 1,200")):
            (run / "card.json").write_text(json.dumps({**card, "precision": told}))
            rows = [line.split() for line in command("info", str(run)).result.splitlines()]
            assert ["precision", *expected.split()] in rows
            assert json.loads(command("info", str(run), "--json").result)["precision"] == told

    def test_no_row_is_empty(self, command: Run, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", "direct", of="hmm", states=2, eos=1)
        card = json.loads((run / "card.json").read_text())
        record = {"step": 1200, "split": "test", "perplexity": "inf", "f1": 50.126, "num_sentences": 2000}
        card["results"] |= {"test": record, "stopped": "", "finished": True, "epochs": 3, "seconds": 1234.56}
        (run / "card.json").write_text(json.dumps(card))
        rows = [line.split() for line in command("info", str(run)).result.splitlines()]
        assert ["test", "1,200", "inf", "50.13", "-", "2,000"] in rows
        assert [row for row in rows if len(row) == 2][-4:-1] == [
            ["steps", "7"],
            ["epochs", "3"],
            ["seconds", "1,234.6"],
        ]
        assert ["stopped"] not in rows

    @pytest.mark.parametrize("name", ["info", "score", "parse", "sample", "evaluate"])
    def test_a_damaged_vocabulary(self, command: Run, tmp_path: Path, name: str) -> None:
        """Every command on a run tells it."""
        run = make_run(tmp_path / "run", "direct", of="simple-pcfg", nonterminals=2, preterminals=3)
        file = run / "vocabulary.txt"
        file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
        message = f"{file}: is truncated or changed: its hash is not that of card.json; bring it back, or train again."
        assert command(name, str(run), given="the dog\n") == (2, "", f"error: {message}\n")

    def test_a_folder_of_seeds(self, command: Run, tmp_path: Path) -> None:
        folder = tmp_path / "seeds"
        run = make_run(folder / "seed-1", "direct", of="hmm", states=2, eos=1)
        summary = {"valid f1": {"mean": 20.0, "deviation": 1.5, "best": 21.0, "worst": 19.0, "num": 2}}
        (folder / "summary.json").write_text(json.dumps(summary))
        seeds = [{"run": str(run), "finished": False, "perplexity": 12.5}]
        found = json.loads(command("info", str(folder), "--json").result)
        assert found == {"directory": str(folder), "runs": [str(run)], "seeds": seeds, "summary": summary}
        rows = [line.split() for line in command("info", str(folder)).result.splitlines()]
        assert ["valid", "S-F1", "20.00", "1.50", "21.00", "19.00", "2"] in rows
        (folder / "summary.json").write_text("{")
        message = f"error: {folder}/summary.json: is damaged (no JSON); train again with --resume.\n"
        assert command("info", str(folder)) == (2, "", message)

    def test_seeds_that_have_not_all_ended(self, command: Run, tmp_path: Path) -> None:
        folder = tmp_path / "seeds"
        best = {"step": 1200, "split": "valid", "perplexity": 101.5, "f1": 40.25}
        for number, results in ((10, {}), (2, {"best": best}), (1, {"best": best, "finished": True})):
            card = make_run(folder / f"seed-{number}", "direct", of="hmm", states=2, eos=1) / "card.json"
            card.write_text(json.dumps({**json.loads(card.read_text()), "results": results}))
        rows = [line.split() for line in command("info", str(folder)).result.splitlines()]
        assert [row for row in rows if row and row[0].startswith("seed-")] == [
            ["seed-1", "1,200", "101.50", "40.25", "yes"],
            ["seed-2", "1,200", "101.50", "40.25", "no"],
            ["seed-10", "-", "-", "-", "no"],
        ]
        assert "go on with rankspace train --resume." in " ".join(rows[-1])
        found = json.loads(command("info", str(folder), "--json").result)
        assert found["summary"] is None
        assert [each["finished"] for each in found["seeds"]] == [True, False, False]

    def test_a_damaged_checkpoint_is_told(self, command: Run, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", "direct", of="hmm", states=2, eos=1)
        (run / "checkpoints" / "last" / "state.json").write_text("{")
        found = json.loads(command("info", str(run), "--json").result)
        assert "is damaged (no JSON)" in found["checkpoints"]["last"]["problem"]
        assert command("info", str(run)).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no"], NO_RUN),
        (["--models", "--presets"], "info: RUN, --models and --presets are different questions; ask one at a time."),
    ],
)
def test_mistakes(command: Run, arguments: list[str], message: str) -> None:
    assert command("info", *arguments) == (2, "", f"error: {message}\n")
