"""Forward and backward messages of a batch in logarithms, exact in every entry: what the queries are answered from."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.chain.log_space import LogRecursion, backward_table, forward_table
from rankspace.inference.logarithms import exact_log_product, log_sum_exp
from rankspace.inference.ragged import Ragged


@dataclass(frozen=True)
class Messages:
    """Of a recursion in float64. Without derivatives."""

    recursion: LogRecursion

    @cached_property
    def forward(self) -> Float[Tensor, "token size"]:
        """log p(words up to t, v_t)."""
        return forward_table(self.recursion, exact_log_product)

    @cached_property
    def backward(self) -> Float[Tensor, "token size"]:
        """log p(words after t | v_t)."""
        return backward_table(self.recursion, exact_log_product)

    @cached_property
    def arriving(self) -> Float[Tensor, "token size"]:
        """log p(words from t on | v_t)."""
        return self.backward + self.recursion.log_words.index_select(0, self.recursion.index)

    @cached_property
    def prefixes(self) -> Float[Tensor, "token"]:
        """log p(words up to t)."""
        return log_sum_exp(self.forward)

    @cached_property
    def log_z(self) -> Float[Tensor, "batch"]:
        """log p(sentence) by place; 0 for an empty one."""
        return at_the_end(self.recursion.layout, self.prefixes)

    @property
    def possible(self) -> Bool[Tensor, "batch"]:
        """By place; also where NaN parameters leave it open."""
        return self.log_z != -torch.inf

    def posterior(self, rows: Int[Tensor, "row"]) -> Float[Tensor, "row size"]:
        """p(v_t | sentence) at some words; zeros in impossible sentences."""
        return self.normalised(self.forward[rows] + self.backward[rows], rows)

    def normalised(self, log_joint: Float[Tensor, "row _"], rows: Int[Tensor, "row"]) -> Float[Tensor, "row _"]:
        """exp(log_joint - log Z) of the rows' sentences; zeros in impossible ones."""
        place = self.recursion.layout.token_place[rows]
        probabilities = (log_joint - self.log_z[place, None]).exp()
        return torch.where(self.possible[place, None], probabilities, 0)


def at_the_end(layout: Ragged, rows: Float[Tensor, "token"]) -> Float[Tensor, "batch"]:
    """What stands at the last word of each sentence, by place; 0 for an empty one."""
    if not layout.num_tokens:
        return rows.new_zeros(len(layout.lengths))
    return torch.where(layout.length_at > 0, rows[layout.last_token], 0)


def largest_at_the_end(layout: Ragged, table: Float[Tensor, "token size"]) -> Float[Tensor, "batch"]:
    """The largest entry at the last word of each sentence, in the order of the caller; 0 for an empty one."""
    return layout.in_callers_order(at_the_end(layout, table.amax(1)))


def surprisals(messages: Messages) -> Float[Tensor, "token"]:
    """- log p(w_t | words before it): inf from the first word that cannot follow on."""
    layout, totals = messages.recursion.layout, messages.prefixes
    before = torch.zeros_like(totals)
    before[layout.alive[1] :] = totals[layout.previous]
    return torch.where(totals != -torch.inf, before - totals, torch.inf)


def filtered(log_vectors: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
    """p(v | words so far); zeros if the words are impossible."""
    totals = log_sum_exp(log_vectors)[:, None]
    return torch.where(totals != -torch.inf, (log_vectors - totals).exp(), 0)
