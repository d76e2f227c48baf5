"""Small raw files, named and written as the real ones."""

from pathlib import Path

from rankspace.experiments import datasets

TREE = "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ sees) (NP (-NONE- *T*-1)) (NP (CD 3) (NNS cats))) (. .)) )"
TEXT = "the dog sees N cats\nthe <unk> sleeps\n"


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def raw(folder: Path) -> Path:
    """As in a folder of all data sets."""
    texts = dict.fromkeys(datasets.TEXT, TEXT)
    table = "0\twsj_0001\t0\ttrain\n1\twsj_0001\t1\tvalid\n2\twsj_0001\t2\ttest\n"
    craft = dict.fromkeys(datasets.FILES["craft"], f"{TREE}\n")
    return put(folder, {**texts, datasets.SAMPLE[0]: f"{TREE}\n" * 3, datasets.SAMPLE[1]: table, **craft})


def treebank(folder: Path, *sections: int) -> Path:
    """A small tree of section folders, trees over several lines as the treebank has them."""
    tree = TREE.replace(" (VP", "\n    (VP")
    return put(
        folder,
        {f"package/mrg/wsj/{n:02}/wsj_{n:02}{file:02}.mrg": f"\n{tree}\n{tree}\n" for n in sections for file in (1, 2)},
    )
