"""Experts: feed-forward networks, of which each row of a sample goes to a few that its scores choose."""

import torch
from torch import Tensor, nn

from executor.families.blocks import ACTIVATION_NAMES, activation
from executor.families.configuration import PublishedFields


class Experts(nn.Module):
    """Gated experts, each of which takes as many rows of every sample as it would if rows were shared out evenly.

    A row chooses the experts of its largest scores; an expert takes the rows that give it most, and passes over those
    that are more than its share.  So sizes do not depend on the data.

    Source:
        Riquelme et al., "Scaling Vision with Sparse Mixture of Experts", NeurIPS 2021, Sec. 2.3 and 4.1: a capacity,
        and rows in the order of their weights.  Jiang et al., "Mixtral of Experts", 2024, Sec. 2.1: the experts.
    """

    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width, inner = config.count("hidden_size"), config.count("intermediate_size")
        self.experts, self.chosen = config.count("num_local_experts", 8), config.count("num_experts_per_tok", 2)
        if self.chosen > self.experts:
            rule = f"at most the {self.experts} experts of num_local_experts"
            raise config.problem("num_experts_per_tok", rule, self.chosen)
        self.gate = nn.Linear(width, self.experts, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.empty(self.experts, width, inner)) for _ in range(2))
        self.w2 = nn.Parameter(torch.empty(self.experts, inner, width))
        self.act_fn = activation(config.choice("hidden_act", tuple(ACTIVATION_NAMES), "silu"))
        for matrix in (self.w1, self.w2, self.w3):
            nn.init.normal_(matrix, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the experts make of rows, shape (samples, rows, channels)."""
        scores = self.gate(x).softmax(-1)
        least = scores.topk(self.chosen, -1).values[..., -1:]
        scores = torch.where(scores >= least, scores, 0.0)
        scores = (scores / scores.sum(-1, keepdim=True)).transpose(1, 2)
        weights, places = scores.topk(-(-self.chosen * x.shape[1] // self.experts), -1)
        index = places.flatten(1)[..., None].expand(-1, -1, x.shape[2])
        rows = x.gather(1, index).unflatten(1, (self.experts, -1))
        inner = self.act_fn(torch.einsum("sern,enh->serh", rows, self.w1))
        inner = inner * torch.einsum("sern,enh->serh", rows, self.w3)
        made = torch.einsum("serh,ehn->sern", inner, self.w2) * weights[..., None]
        return torch.zeros_like(x).scatter_add(1, index, made.flatten(1, 2))
