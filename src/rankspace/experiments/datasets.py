"""The data of the experiments, prepared from raw files as they are distributed, or synthetic in their place.

ptb-text    lm/ptb/ptb.{train,valid,test}.txt: the language-model text, with <eos>
ptb         trains on that text and is scored on trees/nltk_ptb_sample.mrg: valid, test, and all of it; `held-out` and
            `text-test` are the valid and test text, without trees
wsj         in place of ptb where the folder holds all sections from 02 to 23 of the Penn Treebank
craft       trees/craft.{train,dev,test}.mrg
craft-text  the same with <eos>, for chains
synthetic   in place of any of them where there is no folder; with the splits of ptb
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rankspace.data import PRESETS, Corpus, Gold, PreparedData, find_sources, load_prepared, prepare, save_prepared
from rankspace.data.preparation import make_card
from rankspace.data.prepared import load_card, sha256
from rankspace.data.sources import SECTIONS, treebank_sections
from rankspace.errors import RankspaceError
from rankspace.training.data_source import SYNTHETIC, load_data

PTB_TEXT, PTB, WSJ, CRAFT, CRAFT_TEXT = "ptb-text", "ptb", "wsj", "craft", "craft-text"
TEXT = tuple(f"lm/ptb/ptb.{split}.txt" for split in ("train", "valid", "test"))
SAMPLE = ("trees/nltk_ptb_sample.mrg", "trees/nltk_ptb_sample.split.tsv")
TREES = tuple(f"trees/craft.{split}.mrg" for split in ("train", "dev", "test"))
FILES = {PTB_TEXT: TEXT, PTB: (*TEXT, *SAMPLE), CRAFT: TREES, CRAFT_TEXT: TREES}
NAMES = (PTB_TEXT, PTB, WSJ, CRAFT, CRAFT_TEXT, SYNTHETIC)
SPLITS = ("train", "valid", "test")
HELD_OUT = "held-out"  # the split of text, without trees, that is no part of what is trained on
SYNTHETIC_NOTE = "synthetic sentences of the package, for there were no data; figures mean nothing beside the paper's"


class Dataset(NamedTuple):
    """Data under the name they really have, and what a configuration calls them."""

    name: str
    source: str
    data: PreparedData


def name_of(wanted: str, folder: Path | None, prepared: Path) -> str:
    """What there is for the data that a row names: the same, wsj, or synthetic.

    Without raw files it is what is prepared. Raises RankspaceError, naming what is missing.
    """
    names = (WSJ, PTB) if wanted == PTB else (wanted,)
    made = next((name for name in names if (prepared / name).exists()), None)
    if folder is None:
        return made or SYNTHETIC
    if not folder.is_dir():
        raise RankspaceError(f"experiment: {folder}: there is no such folder; give that of the raw files.")
    if wanted == PTB and _has_sections(folder):
        return WSJ
    missing = [file for file in FILES[wanted] if _place(folder, file) is None]
    if missing and made is None:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        sections = " give a folder of sections 02 to 23 of the treebank," if wanted == PTB else ""
        raise RankspaceError(
            f"experiment: {folder}: {wanted} needs {', '.join(missing)}, which {are} not there; add {them},{sections} "
            f"or leave out --data for synthetic sentences."
        )
    return made if missing and made else wanted


def check_sources(name: str, folder: Path, prepared: Path) -> None:
    """Raises RankspaceError if data by the name that `name_of` gave them were prepared from other files than those of
    their names in a folder of raw files."""
    for place in [prepared / each for each in ((PTB_TEXT, PTB) if name == PTB else (name,))]:
        if place.exists() and (others := _others(place, folder)):
            raise RankspaceError(
                f"experiment: {place}: was prepared from other files than {', '.join(others)} in {folder}; leave out "
                f"--data to go on with it, remove it and the runs on it, or give another --output."
            )


def _others(place: Path, folder: Path) -> list[str]:
    """Raw files of a folder that are not those that prepared data were made from."""
    made_from = {(source["split"], source["sha256"]) for source in load_card(place)["sources"]}
    return [source for source, *found in _raw(place.name, folder) if tuple(found) not in made_from]


def _raw(name: str, folder: Path) -> Iterator[tuple[str, str | None, str]]:
    """What a folder has of a data set: the name, split and hash of each source; a file with a table has no split."""
    if name == WSJ:
        for source in treebank_sections(folder):
            yield source.name, source.split, sha256(source.files)
        return
    for split, file in zip((*SPLITS, None), FILES[name], strict=False):  # a table of splits has no hash on the card
        if (path := _place(folder, file)) is not None:
            yield file, split, sha256([path])


def _has_sections(folder: Path) -> bool:
    """Whether a folder has the Penn Treebank. Raises RankspaceError if it has a part of it."""
    files = [file for source in treebank_sections(folder) for file in source.files]
    there = {part for file in files for part in file.relative_to(folder).parts}
    missing = [number for numbers in SECTIONS.values() for number in numbers if f"{number:02}" not in there]
    if files and missing:
        raise RankspaceError(
            f"experiment: {folder}: has sections of the treebank but not {_listed(missing)}; give the folder above all "
            f"from 02 to 23, or train on a part by rankspace data prepare --preset ptb and rankspace train."
        )
    return bool(files)


def _listed(numbers: Iterable[int]) -> str:
    """03-21, 23."""
    found = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        own = [number for _, number in group]
        found.append(f"{own[0]:02}" if len(own) == 1 else f"{own[0]:02}-{own[-1]:02}")
    return ", ".join(found)


def dataset(name: str, folder: Path | None, prepared: Path, num_synthetic: int) -> Dataset:
    """Data by the name that `name_of` gave them; prepared into a folder the first time."""
    if name == SYNTHETIC:
        source = f"{SYNTHETIC}:{num_synthetic}"
        return Dataset(name, source, _stand_in(load_data(source)))
    place = prepared / name
    if not place.exists():
        assert folder is not None  # or `name_of` would have said synthetic
        prepared.mkdir(parents=True, exist_ok=True)
        save_prepared(place, _read(name, folder, prepared))
    return Dataset(name, str(place), load_prepared(place))


def _read(name: str, folder: Path, prepared: Path) -> PreparedData:
    if name == WSJ:
        return prepare(list(treebank_sections(folder)), PRESETS["ptb"].preprocessing, preset="ptb")
    if name == PTB:
        return _scored_text(folder, prepared)
    preset = "ptb-lm" if name == PTB_TEXT else CRAFT
    preprocessing = replace(PRESETS[preset].preprocessing, eos=name != CRAFT)
    files = [f"{split}={_place(folder, file)}" for split, file in zip(SPLITS, FILES[name], strict=True)]
    return prepare(find_sources(files), preprocessing, preset=preset)


def _scored_text(folder: Path, prepared: Path) -> PreparedData:
    """The language-model text, and the sample's trees with words as in it."""
    text = dataset(PTB_TEXT, folder, prepared, 0).data
    preset = PRESETS["nltk-lm"].preprocessing
    sample = prepare(
        find_sources([str(_place(folder, SAMPLE[0]))], table=_place(folder, SAMPLE[1])),
        preset,
        prepared / PTB_TEXT,
        preset="nltk-lm",
    )
    splits = {
        "train": text["train"],
        "valid": sample["valid"],
        "test": sample["test"],
        "all": joined(sample.splits.values()),
        HELD_OUT: text["valid"],
        "text-test": text["test"],
    }
    sources = [*text.card["sources"], *sample.card["sources"]]
    return PreparedData(make_card("nltk-lm", replace(preset, eos=True), sources, splits), text.vocabulary, splits)


def _stand_in(data: PreparedData) -> PreparedData:
    """Synthetic data with the splits of ptb."""
    held_out = {name: replace(data[split], gold=None) for name, split in ((HELD_OUT, "valid"), ("text-test", "test"))}
    return PreparedData(
        data.card, data.vocabulary, {**data.splits, "all": joined([data["valid"], data["test"]]), **held_out}
    )


def joined(corpora: Iterable[Corpus]) -> Corpus:
    """Corpora with gold trees over the same names, one after the other."""
    parts = list(corpora)
    golds = [part.gold for part in parts if part.gold is not None]
    gold = Gold(
        _offsets([each.offsets for each in golds]),
        np.concatenate([each.spans for each in golds]),
        np.concatenate([each.labels for each in golds]),
        np.concatenate([each.tags for each in golds]),
        golds[0].label_names,
        golds[0].tag_names,
    )
    tokens = np.concatenate([part.tokens for part in parts])
    return Corpus(parts[0].vocabulary, tokens, _offsets([part.offsets for part in parts]), gold)


def _offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _place(folder: Path, file: str) -> Path | None:
    """Where a raw file is: as in a folder of all data sets, or beside the others."""
    places = (folder / file, folder / Path(file).name)
    return next((place for place in places if place.is_file()), None)
