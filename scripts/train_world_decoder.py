"""Train the decoder that ships with the world: captions from one vector (READ-CLIP's recipe).

    python scripts/train_world_decoder.py --out src/counterpoint/world/decoder

An encoder makes a vector of a caption and the decoder says the caption from it; the encoder is
thrown away. Captions are statements in common and rare words, drawn as for training.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting
from counterpoint.training.decoders import WordDecoder
from counterpoint.training.recipe import DataConfig
from counterpoint.training.towers import open_start

CONFIG = {"vocabulary": 679, "width": 64, "layers": 2, "heads": 4, "context": 32}


class Encoder(nn.Module):
    """The mean over a transformer's outputs, as one vector of length 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CONFIG["vocabulary"], width)
        self.places = nn.Parameter(0.02 * torch.randn(CONFIG["context"], width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        there = ids != 0
        said = self.embedding(ids) + self.places[: ids.shape[1]]
        out = self.blocks(said, src_key_padding_mask=~there) * there[..., None]
        return nn.functional.normalize(out.sum(1), dim=1) * CONFIG["width"] ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    start = open_start("world:base", "cpu")
    asked = {"synonym": 0.2, "size": given.batch * given.steps, "workers": 0}
    config = DataConfig.model_validate(asked)
    setting = Setting(config, start.transform, start.tokenizer, given.batch, seed=1 << 40)
    data: Any = open_data(setting)
    encoder, decoder = Encoder(CONFIG["width"]), WordDecoder(**CONFIG)
    both = nn.ModuleList((encoder, decoder))
    optimiser = torch.optim.AdamW(both.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, given.steps)
    began = time.time()
    for step in range(given.steps):
        samples = data.samples(0, step)
        words, _ = data.texts(samples, data.edits(samples))
        tokens = data._tokenised(words)  # no picture is painted
        ids = torch.cat((tokens["captions"], tokens["negatives"][:, 0]))
        logits = decoder(encoder(ids), ids)[:, :-1]
        loss = cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=0)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 100 == 99:
            right = (logits.argmax(2) == ids[:, 1:])[ids[:, 1:] != 0].float().mean()
            print(f"{step + 1}: loss {float(loss.detach()):.4f}, words right {float(right):.4f}, "
                  f"{time.time() - began:.0f} s", flush=True)  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    weights = {n: w.detach().half().contiguous() for n, w in decoder.state_dict().items()}
    save_file(weights, given.out / "decoder.safetensors")
    (given.out / "config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
