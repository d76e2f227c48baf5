"""docs/results.md is written from records, and what is typed there agrees with them."""

import json
import re
import runpy
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from rankspace.bench import pages
from rankspace.experiments import cells, load_table, table_names
from rankspace.experiments.record import row_entry
from rankspace.experiments.statistics import of_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
TEXT = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
FIGURE = re.compile(r"(?<![\w.])\d+\.\d(?!\d)")  # with one digit after the point, as figures are printed


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "experiments.py"))


def made_up_row(name: str, data: str, scores: dict[str, Any], **changes: Any) -> dict[str, Any]:
    evaluations = [{"epoch": number, "elapsed": 60.0 * number, "perplexity": 300.0 / number} for number in (1, 2, 3)]
    machine = {"device": "cuda (GPU)", "torch": "2", "commit": "c"}
    runs = [
        {"seed": seed, "state": "finished", "seconds": 60.0 + 60.0 * seed, "sharing": seed, "environment": machine}
        | {"evaluations": evaluations}
        | {"scores": {split: {**each, "perplexity": 99.0 + seed} for split, each in scores.items()}}
        for seed in (1, 2)
    ]
    runs.append({**runs[0], "seed": 3, "state": "failed", "failed": "not enough memory", "scores": {}})
    row = {"name": name, "title": f"Row {name}", "about": "", "data": data, "ablation_of": None, "weights": 1000}
    figures = {"paper": {}, "reproduction": {}, "config": {"model.preterminals": 9000}, "weights_now": 1000}
    planned = {"planned_seeds": [1, 2, 3, 4], "runs": runs, **changes}
    return {**row, **figures, "together": None, **planned, "statistics": of_runs(planned["runs"], 150.0)}


def made_up(table: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    peers = [{"name": "a peer", "row": "a", "milliseconds": 60.0, "steps": 3000, "minutes": 3.0, "about": "roughly"}]
    return {"table": table, "title": "Title", "date": "today", "note": "Note.", "peers": peers, "rows": rows}


def chain(name: str, **changes: Any) -> dict[str, Any]:
    return made_up_row(name, "ptb-text", {"valid": {}, "test": {}}, **changes)


def grammar(name: str = "g", **changes: Any) -> dict[str, Any]:
    bound = {"s_f1": 39.5, "s_f1_longer": 39.0, "corpus_f1": 35.0}
    bounds = dict.fromkeys(("left_branching", "right_branching", "random", "oracle"), bound)
    scores = {"s_f1": 60.0, "s_f1_longer": 59.0, "corpus_f1": 55.0, "bounds": bounds}
    return made_up_row(name, "ptb", dict.fromkeys(("valid", "test", "all"), scores), **changes)


def test_figures_are_those_of_the_records(page: dict[str, Any]) -> None:
    """`python benchmarks/experiments.py` would change nothing."""
    assert page["with_blocks"](TEXT) == TEXT
    assert [name for name in page["BLOCKS"] if f"<!-- {name} -->\n" not in TEXT] == []
    assert {f"experiment-{name}" for name in table_names()} <= page["BLOCKS"].keys()


class TestWhatIsTyped:
    """Outside of blocks."""

    def sections(self) -> dict[str, str]:
        """By heading, without blocks."""
        text = re.sub(r"<!-- ([\w-]+) -->.*<!-- /\1 -->", "", TEXT, flags=re.DOTALL)
        places = [*(found.start() for found in re.finditer(r"^#+ ", text, re.MULTILINE)), len(text)]
        parts = [text[begin:end] for begin, end in pairwise(places)]
        return {part.partition("\n")[0].strip("# "): part for part in parts}

    def test_has_figures_of_the_cpu_alone(self) -> None:
        """Those of GPUs are written, not typed."""
        has_figures = [heading for heading, text in self.sections().items() if FIGURE.search(text)]
        assert has_figures == [
            "Small grammars on real text, on a CPU",
            "A small HMM on real text, on a CPU",
            "The demonstration",
        ]

    @pytest.mark.parametrize(
        ("record", "headings"),
        [
            ("real-data-cpu", ("Small grammars on real text, on a CPU", "A small HMM on real text, on a CPU")),
            ("demo", ("The demonstration",)),
        ],
    )
    def test_figures_are_those_of_a_record(self, record: str, headings: tuple[str, ...]) -> None:
        known = {f"{number:.1f}" for number in numbers(json.loads((RESULTS / f"{record}.json").read_text()))}
        for heading in headings:
            assert [figure for figure in FIGURE.findall(self.sections()[heading]) if figure not in known] == []

    def test_words_of_a_sentence_of_the_text(self) -> None:
        """What peers are timed at, beside what the text has."""
        train = (pages.record(RESULTS, "experiment-pcfg-table1") or {})["data"]["ptb"]["splits"]["train"]
        words = train["num_words"] / train["num_sentences"]
        for peer in load_table("pcfg-table1").peers:
            assert peer["about"].endswith(f"where the text has {words:.0f}")

    def test_small_grammars(self, page: dict[str, Any]) -> None:
        """Of two epochs: what begins Xavier normal has a far higher perplexity, and parses by chance; averaged weights
        have a lower perplexity; all else is within what seeds differ."""
        planned = {row["name"]: row for row in page["of_table"]("pcfg-recipe")["rows"]}
        short = {"run.epochs": 2, "batches.max_length": 20}
        rows = {name: row for name, row in planned.items() if short.items() <= row["config"].items()}
        found = {name: row["statistics"]["splits"]["test"] for name, row in rows.items()}
        right = rows["base"]["runs"][0]["scores"]["test"]["bounds"]["right_branching"]["s_f1"]
        xavier, base = {"xavier", "xavier-rectified"}, found["base"]
        by_chance = [run["scores"]["test"]["s_f1"] for name in xavier for run in rows[name]["runs"]]
        assert min(by_chance) < right - 10
        assert max(by_chance) > base["s_f1"]["best"]
        for name in xavier:
            (first,) = (run for run in rows[name]["runs"] if run["seed"] == 1)
            assert first["scores"]["test"]["s_f1"] == pytest.approx(right, abs=1e-9)
        others = [found[name] for name in found.keys() - xavier]
        assert all(
            min(found[name]["perplexity"]["mean"] for name in xavier) > each["perplexity"]["worst"] for each in others
        )
        differ = max(each["s_f1"]["best"] - each["s_f1"]["worst"] for each in others)
        kept = [found[name] for name in found.keys() - xavier - {"simple"}]
        assert all(abs(each["s_f1"]["mean"] - base["s_f1"]["mean"]) <= differ for each in kept)
        pairs = zip(rows["average"]["runs"], rows["base"]["runs"], strict=True)
        held_out = [[run["scores"]["held-out"]["perplexity"] for run in pair] for pair in pairs]
        assert all(averaged < last for averaged, last in held_out)
        assert found["simple"]["perplexity"]["mean"] <= base["perplexity"]["mean"]
        assert found["simple"]["s_f1"]["best"] < right < base["s_f1"]["worst"]
        assert found["dropout-30"]["perplexity"]["mean"] > base["perplexity"]["mean"]

    def test_longer_runs_of_small_grammars(self, page: dict[str, Any]) -> None:
        """Any length lowers perplexity most; what begins Xavier normal parses as well after ten epochs, with a higher
        perplexity; held-out text chooses checkpoints that parse worse; grammars of several recipes are best together.
        """
        record = page["of_table"]("pcfg-recipe")
        rows = {row["name"]: row for row in record["rows"] if row["statistics"]["splits"]}
        found = {name: row["statistics"]["splits"] for name, row in rows.items()}
        ways = {name: row["ablation_of"] for name, row in rows.items()}
        test = {name: each["test"] for name, each in found.items()}
        lowest = min((name for name in test if ways[name] == "base"), key=lambda name: test[name]["perplexity"]["mean"])
        assert lowest == "all-lengths"
        gain = test[lowest]["s_f1"]["mean"] - test["base"]["s_f1"]["mean"]
        assert 0 < gain < test["base"]["s_f1"]["best"] - test["base"]["s_f1"]["worst"]
        for name in ("long-xavier", "long-xavier-rectified"):
            assert test[name]["s_f1"]["mean"] >= test["long"]["s_f1"]["mean"]
            assert test[name]["perplexity"]["mean"] > test["long"]["perplexity"]["mean"]
        for name in ("long", "long-xavier", "long-xavier-rectified"):
            by_text = [run["by_text"]["scores"]["test"]["s_f1"] for run in rows[name]["runs"]]
            assert 1 < test[name]["s_f1"]["mean"] - fmean(by_text) < 5
            assert abs(rows[name]["together"]["scores"]["test"]["s_f1"] - fmean(by_text)) < 5
        together = record["together"]["ptb"]
        alone = [run["by_text"]["scores"]["test"]["s_f1"] for name in together["runs"] for run in rows[name]["runs"]]
        assert max(alone) < together["scores"]["test"]["s_f1"] < max(alone) + 1
        of_sizes = page["of_table"]("pcfg-figure6")
        own = {row["name"]: row for row in of_sizes["rows"]}
        of_two = of_sizes["together"]["ptb"]
        single = [run["by_text"]["scores"]["test"]["s_f1"] for name in of_two["runs"] for run in own[name]["runs"]]
        assert fmean(single) < of_two["scores"]["test"]["s_f1"] < max(single)

    def test_small_grammars_as_in_the_published_code(self, page: dict[str, Any]) -> None:
        """Most parse better than all grammars of other rows. Neither the first epoch nor perplexity tells how well a
        seed parses, though both single out the best; neither biases nor the root change much of that one."""
        rows = {row["name"]: row for row in page["of_table"]("pcfg-recipe")["rows"] if row["statistics"]["splits"]}
        code, as_it_is = "all-lengths-long-code", rows["all-lengths-long-code"]["runs"]
        s_f1, held_out = (
            {run["seed"]: run["scores"][split][name] for run in as_it_is}
            for split, name in (("test", "s_f1"), ("held-out", "perplexity"))
        )
        first_epoch = {run["seed"]: run["evaluations"][0]["f1"] for run in as_it_is}
        worst, *_, third, _, best = sorted(s_f1, key=s_f1.__getitem__)
        assert (len(s_f1), best, worst) == (6, 1, 2)
        assert (max(first_epoch, key=first_epoch.__getitem__), min(first_epoch, key=first_epoch.__getitem__)) == (1, 2)
        assert first_epoch[third] < first_epoch[best] - 15
        assert sorted(held_out, key=held_out.__getitem__)[:2] == [best, worst]
        assert 0 < s_f1[best] - as_it_is[0]["by_text"]["scores"]["test"]["s_f1"] < 1
        others = {name: row["statistics"]["splits"]["test"]["s_f1"] for name, row in rows.items() if code not in name}
        best_other = max(other["best"] for other in others.values())
        assert sum(each > best_other + 1 for each in s_f1.values()) == 4
        assert sum(abs(each - best_other) < 0.5 for each in s_f1.values()) == 1
        assert s_f1[best] > best_other + 5
        assert sum(other["mean"] > s_f1[worst] for other in others.values()) > len(others) / 2
        assert abs(stdev(s_f1.values()) - 6.0) < 1  # as row rank-pcfg of table 1 has it of others
        for name in ("zero", "states"):
            (run,) = rows[f"{code}-{name}"]["runs"]
            assert abs(run["scores"]["test"]["s_f1"] - s_f1[best]) < 3
        assert s_f1[best] > rows["all-lengths-long"]["statistics"]["splits"]["test"]["s_f1"]["mean"] + 8

    def test_what_seeds_of_small_grammars_differ_in(self, page: dict[str, Any]) -> None:
        """Those of which recall by label is known, by the checkpoints that held-out text chose."""
        rows = {row["name"]: row for row in page["of_table"]("pcfg-recipe")["rows"]}
        row = rows["all-lengths-long-code"]
        chosen = [run["by_text"]["scores"]["test"] for run in row["runs"]]
        known = [each["by_label"] for each in chosen if "by_label" in each]
        most = max(known, key=lambda each: each["NP"]["recall"])
        assert len(known) == 4
        for label, place in (("S", max), ("VP", min), ("PP", min)):
            assert place(known, key=lambda each: each[label]["recall"]) is most
        together = row["together"]["scores"]["test"]
        alone = [each["s_f1"] for each in chosen if "by_label" in each]
        assert together["s_f1"] > max(alone) + 1

    def test_small_grammars_with_few_nonterminals(self, page: dict[str, Any]) -> None:
        """A quarter of the rate has a lower perplexity for each seed; nothing diverges."""
        rows = {row["name"]: row for row in page["of_table"]("pcfg-recipe")["rows"]}
        for fast, slow in zip(rows["few"]["runs"], rows["few-rate"]["runs"], strict=True):
            assert slow["scores"]["held-out"]["perplexity"] < fast["scores"]["held-out"]["perplexity"]
            perplexity = [each["perplexity"] for each in fast["evaluations"]]
            assert perplexity[-1] < 1.05 * min(perplexity)

    def test_an_earlier_grammar_of_the_same_settings(self, page: dict[str, Any]) -> None:
        """It parses better than all of the rows, and far better than the seeds that were run later; wider embeddings
        gain nothing, larger batches lose nothing."""
        earlier = json.loads((RESULTS / "real-data-cpu.json").read_text())["ptb-text, tested on the NLTK sample's test"]
        rows = {row["name"]: row for row in page["of_table"]("pcfg-recipe")["rows"] if row["statistics"]["splits"]}
        wide, batch = rows["all-lengths-256"], rows["all-lengths-256-batch-32"]
        assert (batch["weights"], batch["config"]["run.epochs"]) == (earlier["model"]["weights"], 2)
        s_f1 = {name: row["statistics"]["splits"]["test"]["s_f1"] for name, row in rows.items()}
        assert earlier["evaluation"]["parsing"]["s_f1"] > max(each["best"] for each in s_f1.values())
        assert earlier["evaluation"]["parsing"]["s_f1"] > s_f1[batch["name"]]["best"] + 5
        assert s_f1[wide["name"]]["mean"] <= s_f1["all-lengths"]["mean"]
        assert s_f1[batch["name"]]["mean"] >= s_f1[wide["name"]]["mean"]

    def test_a_grammar_that_diverges(self, page: dict[str, Any]) -> None:
        """Perplexity rises from the fourth epoch on and doubles, S-F1 falls from the sixth, and chose the fifth."""
        rows = {row["name"]: row for row in page["of_table"]("pcfg-figure6")["rows"]}
        (run,) = rows["preterminals-1000"]["runs"]
        perplexity, f1 = ([each[name] for each in run["evaluations"]] for name in ("perplexity", "f1"))
        assert perplexity[2] == min(perplexity)
        assert perplexity[2:] == sorted(perplexity[2:])
        assert perplexity[9] > 2 * perplexity[2]
        assert f1[5] < f1[4] == max(f1)
        assert run["chosen"]["epoch"] == 5

    def test_seeds_of_two_commits(self, page: dict[str, Any]) -> None:
        """Later ones parse worse, with no higher perplexity."""
        rows = {row["name"]: row for row in page["of_table"]("pcfg-table1")["rows"] if row["data"] == "ptb"}
        groups: dict[str, list[dict[str, Any]]] = {}
        for run in rows["rank-pcfg"]["runs"]:
            groups.setdefault(run["environment"]["commit"], []).append(run["scores"])
        earlier, later = groups.values()
        assert max(each["test"]["s_f1"] for each in later) < min(each["test"]["s_f1"] for each in earlier)
        means = [fmean(each["held-out"]["perplexity"] for each in some) for some in (earlier, later)]
        assert means[1] <= means[0]

    def test_states_in_the_paper(self) -> None:
        """More are no clear gain at rank 4096, and out of order at rank 2048."""
        table2, table3 = ({row.name: row.paper for row in load_table(f"hmm-table{n}").rows} for n in (2, 3))
        assert table2["rank-hmm-15"]["test"] > table2["rank-hmm-14"]["test"] - 1
        assert table2["rank-hmm-15"]["valid"] > table2["rank-hmm-14"]["valid"]
        tests = [table3[f"states-{power}"]["test"] for power in (12, 13, 14, 15)]
        assert min(tests) == tests[3] < tests[0]
        assert tests != sorted(tests, reverse=True)

    def test_precisions(self, page: dict[str, Any]) -> None:
        """Perplexity is no higher in the faster precision; S-F1 differs by less than seeds do. Rows at rank 1000 have
        not been run."""
        rows = {row["name"]: row["statistics"]["splits"] for row in page["of_table"]("precision")["rows"]}
        named = [(row.name, row.ablation_of) for row in load_table("precision").rows if row.ablation_of]
        pairs = [(rows[fast], rows[fine]) for fast, fine in named if rows[fast] or rows[fine]]
        left = [fast for fast, fine in named if not (rows[fast] or rows[fine])]
        assert left == ["pcfg-1000-medium", "pcfg-9000-medium"]
        for fast, fine in pairs:
            for split in ("valid", "test"):
                assert fast[split]["perplexity"]["mean"] <= fine[split]["perplexity"]["mean"]
                if "s_f1" in fine[split]:
                    found = [each[split]["s_f1"] for each in (fast, fine)]
                    apart = abs(found[0]["mean"] - found[1]["mean"])
                    assert apart < max(each["best"] - each["worst"] for each in found)


def numbers(value: Any) -> Iterator[float]:
    """All of a record."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value


def test_chains(page: dict[str, Any]) -> None:
    rows = [
        chain("a", paper={"valid": 135.6, "test": 127.0}),
        chain("b", ablation_of="a", about="with less"),
        chain("c", about="with less", paper={"valid": 125.0, "source": "Others 2020"}, runs=[]),
        chain("d", weights_now=2000),
    ]
    text = page["chain_block"](made_up("hmm-table2", rows))
    assert text.startswith(
        "today, `rankspace experiment hmm-table2 --data DIR`, commit c, torch 2, on cuda (GPU). Note."
    )
    figures = "100.5 ± 0.7 | **100.5 ± 0.7** | 100.0"
    ends = "2 of 4 | 2.0 | 1 | 150: 2.0 (2 of 2) |"
    assert f"| Row a (`a`) | 0.0 M | 135.6 | 127.0 | the paper | {figures} |  | {ends}" in text
    assert f"| Row b (`b`, of `a`) | 0.0 M |  |  |  | {figures} | +0.0 |" in text
    assert "| Row c (`c`) | 0.0 M | 125.0 |  | Others 2020 |  | not run yet |  |  | 0 of 4 |  |  |  |" in text
    assert "| Row d (`d`), *former model* |" in text
    assert "- `b`, `c`: with less.\n" in text
    assert "- `d`: runs of a former model of this name, with 1,000 weights instead of 2,000; to be repeated.\n" in text
    assert "- a peer: 3 minutes for `a`, 3,000 steps of 60 ms; roughly.\n" in text
    assert "- `a` on ptb-text, seed 3, failed: not enough memory.\n" in text
    assert "![Title](results-hmm-table2.png)" in text


def test_a_table_that_was_not_run(page: dict[str, Any]) -> None:
    """What nothing is known of has no columns."""
    text = page["chain_block"](made_up("hmm-table2", [chain("a", runs=[], weights=None)]))
    assert text.startswith("`rankspace experiment hmm-table2 --data DIR`: not run yet.\n\n| model | test | seeds |\n")
    assert "png" not in text
    assert "| Row g (`g`) | not run yet | 0 of 4 |" in page["tree_block"](made_up("pcfg-figure6", [grammar(runs=[])]))


def test_minutes() -> None:
    row = chain("a")
    late = {"statistics": of_runs(row["runs"], 50.0)}
    assert (cells.time_to(row), cells.time_to(late)) == ("150: 2.0 (2 of 2)", "50: not reached")
    for run in row["runs"]:
        del run["sharing"]  # as in older records
    assert cells.minutes({"statistics": of_runs(row["runs"], None)}) == ["2.0", "?"]
    failed = {"runs": row["runs"][2:], "statistics": of_runs(row["runs"][2:], None)}
    assert cells.main_figure(failed, "test", "perplexity") == "not finished"


def test_infinite_figures_are_counted() -> None:
    """And have no part in the mean."""
    row = chain("a")
    row["runs"][1]["scores"] = {split: {"perplexity": "Infinity"} for split in ("valid", "test")}
    row["statistics"] = of_runs(row["runs"], None)
    assert cells.main_figure(row, "test", "perplexity") == "**100.0, 1 infinite**"
    row["runs"] = row["runs"][1:2]
    row["statistics"] = of_runs(row["runs"], None)
    assert cells.both(row) == "1 infinite / 1 infinite"


def test_a_recipe_and_the_run_that_chose_it(page: dict[str, Any]) -> None:
    """Figures without it are those of the other seeds."""
    text = page["table_block"]("hmm-table2")
    rows = {row["name"]: row for row in page["of_table"]("hmm-table2")["rows"]}
    others = [run["scores"]["test"]["perplexity"] for run in rows["best-14"]["runs"] if run["seed"] != 1]
    found = re.search(r"`best-14`: its first seed is (.*?)\(seeds 2, 3, 4\)", " ".join(text.split()))
    assert found is not None
    assert "the run of `normal-rate-5-decay-size-512` by which the recipe was chosen" in found[1]
    assert f"/ {sum(others) / 3:.1f} ±" in found[1]


def test_trees(page: dict[str, Any]) -> None:
    row = grammar(paper={"s_f1": 64.1}, reproduction={"s_f1": 57.4, "deviation": 6.0, "num": 32})
    text = page["tree_block"](made_up("pcfg-table1", [row, {**row, "data": "craft"}]))
    assert "**ptb**" in text
    assert "**craft**" in text
    start = (
        "| Row g (`g`) | 64.1 | the paper | 57.4 ± 6.0 (32 runs) | 60.0 ± 0.0 | **60.0 ± 0.0** | 60.0 | 60.0 ± 0.0 |"
    )
    assert start in text
    assert "| *right-branching* |  |  |  | 39.5 | 39.5 |  | 39.5 | 39.0 | 35.0 |" in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {16}  # nothing of unseen text


def test_recall_by_label(page: dict[str, Any]) -> None:
    """Of the runs that have it, and of all seeds together."""
    row = grammar()
    assert page["recalls"]([row]) == ""
    by_label = {"NP": {"num_gold": 1200, "recall": 61.23}, "VP": {"num_gold": 90, "recall": 4.0}}
    row["runs"][1]["scores"]["test"] |= {"by_label": by_label}
    other = by_label | {"VP": {"num_gold": 90, "recall": 8.0}}
    row["together"] = {"runs": {"g": [1, 2]}, "scores": {"test": {"s_f1": 62.0, "by_label": other}}}
    assert page["recalls"]([row]).strip().splitlines()[-4:] == [
        "| test | S-F1 | NP (1,200) | VP (90) |",
        "| --- | --- | --- | --- |",
        "| `g`, seed 2 | 60.0 | 61.2 | 4.0 |",
        "| `g`, seeds 1, 2 together | 62.0 | 61.2 | 8.0 |",
    ]


def test_seeds_that_parse_together(page: dict[str, Any]) -> None:
    together = {"runs": {"g": [1, 2]}, "checkpoint": "best", "scores": {"test": {"s_f1": 63.21}}}
    row = grammar(together=together)
    more = {**row, "statistics": {**row["statistics"], "num": 5}}
    assert "| 63.2 (60.0, by S-F1; seeds 1, 2) |" in page["tree_block"](made_up("pcfg-table1", [more]))
    text = page["tree_block"](made_up("pcfg-table1", [row, grammar("h")]))
    assert "| best test | seeds together | all |" in text
    assert "| Row g (`g`) | 60.0 ± 0.0 | **60.0 ± 0.0** | 60.0 | 63.2 (60.0, by S-F1) | 60.0 ± 0.0 |" in text
    assert "| Row h (`h`) | 60.0 ± 0.0 | **60.0 ± 0.0** | 60.0 |  | 60.0 ± 0.0 |" in text


def test_what_other_seeds_found_together_is_left_out() -> None:
    table, row = load_table("pcfg-table1"), grammar()
    together = {"runs": {table.rows[0].name: [1, 2]}, "checkpoint": "best", "scores": {}}
    for seeds, is_kept in (([1, 2], True), ([1], False), ([1, 3], False)):  # of three, of which the last has failed
        given = {**together, "runs": {table.rows[0].name: seeds}}
        found = row_entry(table, table.rows[0], "ptb", {**row, "together": given})["together"]
        assert found == (given if is_kept else None)


def test_rows_that_parse_together(page: dict[str, Any]) -> None:
    """Beside single ones with the same checkpoints."""
    for checkpoint in ("best", "held-out"):
        rows = [grammar(), grammar("h")]
        for number, run in enumerate(run for row in rows for run in row["runs"][:2]):
            run["by_text"] = {"scores": {"test": {"s_f1": 50.0 + number}}}
        together = {"runs": {"g": [1, 2], "h": [1]}, "checkpoint": checkpoint, "scores": {"test": {"s_f1": 63.21}}}
        text = " ".join(page["tree_block"]({**made_up("pcfg-table1", rows), "together": {"ptb": together}}).split())
        how = "S-F1 on the validation split chose" if checkpoint == "best" else "held-out text chose"
        assert f"3 grammars, each with the checkpoint that {how}: `g` (2), `h` (1)." in text
        figures = (
            "60.0 for single ones on average, and 60.0"
            if checkpoint == "best"
            else "51.0 for single ones on average, and 52.0"
        )
        assert f"is 63.2 for all of them together, {figures} for the best" in text


def test_a_variant_of_a_grammar(page: dict[str, Any]) -> None:
    """Its S-F1 beside that of the row it is a variant of."""
    variant = {**grammar(), "name": "v", "ablation_of": "g"}
    better = {**variant["statistics"]["splits"]["valid"]["s_f1"], "mean": 61.25}
    variant["statistics"] = {
        **variant["statistics"],
        "splits": {**variant["statistics"]["splits"], "valid": {"s_f1": better}},
    }
    text = page["tree_block"](made_up("pcfg-table1", [grammar(), variant]))
    assert "| Row g (`g`) | 60.0 ± 0.0 |  | **60.0 ± 0.0** |" in text
    assert "| Row g (`v`, of `g`) | 61.2 ± 0.0 | +1.2 | **60.0 ± 0.0** |" in text


def test_choosing_without_trees(page: dict[str, Any]) -> None:
    row = grammar()
    for run, f1 in zip(row["runs"], ((50.0, 52.0, 51.0), (50.0, 51.0, 55.0), (0.0, 0.0, 0.0)), strict=True):
        run["evaluations"] = [{**each, "f1": found} for each, found in zip(run["evaluations"], f1, strict=True)]
    row["runs"][1]["scores"]["valid"] = {**row["runs"][1]["scores"]["valid"], "s_f1": 61.0}
    row["runs"][1]["by_text"] = {"scores": {"test": {"s_f1": 58.0}, "held-out": {"perplexity": 150.0}}}
    text = page["tree_block"](made_up("pcfg-table1", [row]))
    assert "| `g` | ptb | 53.5 | 53.0 | 1 of 2 | 60.0 ± 0.0 | 60.0 (seed 2) | 60.0 (seed 1) |" in text
    assert "| 60.0 (seed 1) | 60.0 (1 seed) | 58.0 | 58.0 (seed 2) |" in text


def test_pictures(page: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    reported = [chain(name, paper={"valid": 135.6}, runs=[]) for name in ("rank-hmm-14", "vl-hmm-15")]
    evaluated = grammar(paper={"s_f1": 64.1})
    for run in evaluated["runs"]:
        run["evaluations"] = [{**each, "f1": 50.0 + each["epoch"]} for each in run["evaluations"]]
    infinite = chain("b")
    infinite["runs"][1]["scores"]["valid"] = {"perplexity": "Infinity"}
    infinite["statistics"] = of_runs(infinite["runs"], None)
    records = {
        "hmm-table2": made_up("hmm-table2", [chain("a"), *reported]),
        "hmm-recipe": made_up("hmm-recipe", [chain("a"), infinite, chain("c", runs=[])]),
        "pcfg-table1": made_up("pcfg-table1", [evaluated, {**evaluated, "data": "craft"}, grammar("h", runs=[])]),
        "pcfg-recipe": made_up("pcfg-recipe", [evaluated, grammar("h", runs=[])]),
        "pcfg-figure6": made_up(
            "pcfg-figure6",
            [
                {**grammar(config={"model.preterminals": size}), "data": data}
                for size in (1000, 2000)
                for data in ("ptb", "wsj")
            ],
        ),
    }
    for table, draw in page["DRAWN"].items():
        draw(records[table], tmp_path / f"{table}.png")
        assert 5_000 < (tmp_path / f"{table}.png").stat().st_size < 200_000
