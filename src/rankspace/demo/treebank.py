"""The data of the demonstration, with what only their maker knows: their true probabilities."""

from typing import NamedTuple

from rankspace.data import PreparedData
from rankspace.data.synthetic import SyntheticTreebank
from rankspace.evaluation import NgramModel, chain_perplexity
from rankspace.training import synthetic_data
from rankspace.trees import Tree

LONGEST = 40  # words


class Treebank(NamedTuple):
    """Prepared data, and the test sentences as they were written: none of their words is unknown."""

    data: PreparedData
    test: list[Tree]
    true_perplexity: float  # of the test sentences under the grammar that wrote them

    @property
    def sentences(self) -> list[list[str]]:
        return [[str(word) for word in tree.words] for tree in self.test]


def make_treebank(num_sentences: int) -> Treebank:
    """A synthetic treebank; a second or two for each thousand sentences."""
    data = synthetic_data(num_sentences, LONGEST)
    source = SyntheticTreebank(LONGEST)
    [seed] = [entry["seed"] for entry in data.card["sources"] if entry["split"] == "test"]
    test = source.trees(len(data["test"]), seed)
    log_probs = source.log_prob([tree.words for tree in test])
    true = chain_perplexity(log_probs, [len(tree) + 1 for tree in test])
    return Treebank(data, test, true.perplexity)


def ngram_perplexity(data: PreparedData, order: int) -> float:
    """Of the test sentences under an n-gram model of the training sentences; rare words are <unk> in both."""
    train, test = ([tuple(words.tolist()) for words in data[split]] for split in ("train", "test"))
    return NgramModel(train, order).perplexity(test).perplexity
