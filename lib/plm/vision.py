"""A small convolutional network for digits, and the surgery that carries its layers from one task to another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class SmallCNNConfig:
    """The shape of a `SmallCNN`."""

    image_size: int = 8  # side of the square input; 8 for the plain digits, 16 for the hard ones
    n_classes: int = 5  # width of the head: the only part that knows the task
    channels: Sequence[int] = (16, 32, 32, 64)  # one entry per layer: how many filters it has
    pool_after: Sequence[int] = (1, 3)  # layers (counted from 1) that halve the image, so deep filters see more of it

    def __post_init__(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ValueError(f"channels needs at least one layer of at least one filter, got {self.channels}")
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {self.n_classes}")
        halvings = len(self.pool_after)
        if len(set(self.pool_after) & set(range(1, len(self.channels) + 1))) < halvings:
            raise ValueError(f"pool_after names layers 1 to {len(self.channels)}, each once; got {self.pool_after}")
        if self.image_size < 2**halvings:
            raise ValueError(f"an image of {self.image_size} pixels cannot be halved {halvings} times")


class ConvBlock(nn.Module):
    """One layer: 3x3 convolution, batch normalisation, ReLU and, where `pool` is set, the maximum of each 2x2 patch.

    x: (B, c_in, S, S). Returns (B, c_out, S, S), or (B, c_out, S // 2, S // 2) with `pool`.
    """

    def __init__(self, c_in: int, c_out: int, pool: bool):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel_size=3, padding=1)
        self.norm = nn.BatchNorm2d(c_out)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()
        self.frozen = False

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(torch.relu(self.norm(self.conv(x))))

    def freeze(self) -> "ConvBlock":
        """Fix the weights and the running statistics, for good."""
        self.requires_grad_(False)
        self.frozen = True
        return self.eval()

    def train(self, mode: bool = True) -> "ConvBlock":
        """As `nn.Module.train`, but a frozen block stays in evaluation mode: otherwise its statistics would drift."""
        return super().train(mode and not self.frozen)


class SmallCNN(nn.Module):
    """A stack of `ConvBlock`s (`blocks`) and one linear `head`."""

    def __init__(self, config: SmallCNNConfig):
        super().__init__()
        self.config = config
        sizes = [1, *config.channels]
        pools = [layer in config.pool_after for layer in range(1, len(sizes))]
        self.blocks = nn.ModuleList(map(ConvBlock, sizes, sizes[1:], pools))
        side = config.image_size // 2 ** len(config.pool_after)
        self.head = nn.Linear(sizes[-1] * side**2, config.n_classes)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """What each block makes of `images` (B, 1, S, S): one (B, channels, side, side) per block."""
        size = self.config.image_size
        if images.shape[1:] != (1, size, size):
            raise ValueError(f"images must be (B, 1, {size}, {size}), got {tuple(images.shape)}")
        maps = [images]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        return maps[1:]

    def forward(self, images: Tensor) -> Tensor:
        """images (B, 1, S, S) to logits (B, n_classes)."""
        return self.head(self.feature_maps(images)[-1].flatten(1))


def transfer(source: SmallCNN, n_classes: int, n_layers: int, freeze: bool) -> SmallCNN:
    """A network for a new task: the first `n_layers` blocks copied from `source`, everything above them new.

    The head is always new. `freeze=True` fixes the copied blocks, `freeze=False` lets them go on learning. `source` is left
    as it is, and later training of one network does not touch the other. Yosinski et al. 2014.
    """
    if not 0 <= n_layers <= len(source.blocks):
        raise ValueError(f"the source has {len(source.blocks)} layers, cannot copy {n_layers}")
    target = SmallCNN(replace(source.config, n_classes=n_classes))
    for mine, theirs in zip(target.blocks[:n_layers], source.blocks[:n_layers]):
        mine.load_state_dict(theirs.state_dict())
        if freeze:
            cast(ConvBlock, mine).freeze()
    return target.to(source.head.weight.device)


@torch.no_grad()
def calibrate(model: SmallCNN, images: Tensor) -> SmallCNN:
    """Set the running statistics of the blocks that are not frozen to those of `images` (B, 1, S, S); no weight moves.

    New statistics are placeholders, mean 0 and variance 1, and each update replaces a tenth of them. A new network looks worse
    than it is until they are gone, and one that is frozen before any training keeps them for good.
    """
    was_training = model.training
    blocks = cast(list[ConvBlock], model.blocks)
    norms = [block.norm for block in blocks if not block.frozen]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        # A plain average, so that one batch sets the statistics.
        norm.momentum = None
    try:
        model.train()
        model.feature_maps(images)
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
        model.train(was_training)
    return model
