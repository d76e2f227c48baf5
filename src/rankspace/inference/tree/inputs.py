"""What a tree recursion is made of: tensors, and the layout of a batch."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.links import Link
from rankspace.inference.ragged import Ragged


@dataclass(frozen=True)
class Sentences:
    """A batch of sentences as an engine sees it."""

    layout: Ragged
    token_word: Int[Tensor, "token"]  # row of each token's word in a table of distinct words
    log_scale: Float[Tensor, "word"]  # float64; what was taken out of the row of each word
    true_lengths: Int[Tensor, "batch"] | None = None  # for kernels, if those of the layout are padded ones
    doubt: Bool[Tensor, "batch"] | None = None  # for kernels: the backward pass writes there which were lost after all
    own_rows: bool = False  # for kernels: whether every token has a row of its own in the table, in their order


@dataclass(frozen=True)
class TreeInputs:
    """Z = root . alpha(whole sentence), where alpha of a span is the sum over its splits of left * right, elementwise;
    (left, right) of a span is link(alpha), and of a single word its row of `words`. Nonnegative, in linear space."""

    link: Link  # R -> 2R
    words: Float[Tensor, "word both"]  # J, K: each distinct word as a left and as a right child
    root: Float[Tensor, "*place rank"]  # L; of each sentence's own, by places, or one for all
    # For kernels, which round: what sums over splits are divided by, constants.
    mass: Float[Tensor, "rank"] | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.words, self.root, *self.link.tensors)

    def like(self, tensors: tuple[Tensor, ...]) -> "TreeInputs":
        words, root, *of_link = tensors
        return replace(self, words=words, root=root, link=self.link.like(tuple(of_link)))

    def detach(self) -> "TreeInputs":
        return self.like(tuple(tensor.detach() for tensor in self.tensors))

    def clamp(self, highest: float) -> "TreeInputs":
        return self.like(tuple(tensor.clamp(max=highest) for tensor in self.tensors))

    def top(self, alpha: Float[Tensor, "whole rank"], places: slice) -> Float[Tensor, "whole"]:
        """root . alpha of whole sentences."""
        return alpha @ self.root if self.root.dim() == 1 else (alpha * self.root[places]).sum(1)

    def root_at(self, places: slice) -> Float[Tensor, "*whole rank"]:
        """The root of each of some sentences, or of all."""
        return self.root if self.root.dim() == 1 else self.root[places]

    @property
    def rank(self) -> int:
        return self.root.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        return self.words.dtype
