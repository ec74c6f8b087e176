"""Writes what `stages/train/tests` hold training against: `torch`'s AdamW on one matrix, and a loss curve of `transformers`.

Run once, with `torch` and `transformers` installed, from the root of the repository:

    python tests/python/make_training_curve.py stages/train/tests/fixtures

The net is not stored: both sides make its weights from a seed, by the rule of `stages/candle/src/weights/random.rs`, and
the documents from a formula. A step is the mean of `-ln p` over the next tokens of four documents of unequal length.
"""

import json
import math
import sys
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

MASK = (1 << 64) - 1
SEED = 11
STEPS = 20
PEAK, MINIMUM, WARM_UP = 1e-3, 1e-5, 2
DECAY = 0.1
CLIP = 1.0
LENGTHS = (40, 17, 96, 3)
SIZES = dict(
    vocab_size=2048,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    attn_implementation="eager",
)


def mix(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def weights(name: str, shape: torch.Size) -> torch.Tensor:
    """Uniform numbers that follow from the seed and the tensor's name."""
    state = SEED ^ 0x9E3779B97F4A7C15
    for byte in name.encode():
        state = mix(state ^ byte)
    units = []
    for _ in range(shape.numel()):
        state = mix(state)
        units.append((state >> 40) / 8_388_608.0 - 1.0)
    units = torch.tensor(units, dtype=torch.float32).reshape(shape)
    if len(shape) == 2:
        return units * torch.sqrt(torch.tensor(3.0) / shape[1])
    if name.endswith(".bias"):
        return 0.2 * units
    return 1.0 + torch.tensor(0.2) * units


def document(step: int, index: int, length: int) -> torch.Tensor:
    """Tokens of a document: two of eight batches come back at each step modulo 8."""
    salt = 31 * (step % 8) + index
    return torch.tensor([[(i * 37 + salt * 101 + i * i) % SIZES["vocab_size"] for i in range(length)]])


def rate(step: int) -> float:
    if step <= WARM_UP:
        return PEAK * step / WARM_UP
    return MINIMUM + (PEAK - MINIMUM) * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))) / 2


def curve() -> dict:
    net = Qwen2ForCausalLM(Qwen2Config(**SIZES)).float().train()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(weights(name, parameter.shape))
    matrices = [parameter for parameter in net.parameters() if parameter.dim() == 2]
    vectors = [parameter for parameter in net.parameters() if parameter.dim() != 2]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=DECAY), dict(params=vectors, weight_decay=0.0)], betas=(0.9, 0.95), eps=1e-8
    )
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        total = 0.0
        count = sum(length - 1 for length in LENGTHS)
        for index, length in enumerate(LENGTHS):
            tokens = document(step, index, length)
            logits = net(tokens).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="sum") / count
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP).item())
        losses.append(total)
        optimizer.step()
    parameters = sum(parameter.numel() for parameter in net.parameters())
    return dict(parameters=parameters, losses=losses, norms=norms)


def adamw() -> dict:
    start = torch.tensor([[0.5, -1.25], [2.0, 0.0]])
    gradients = [torch.tensor([[0.3, -0.2], [1e-4, 0.0]]) * (1 + 0.5 * k) * (-1) ** (k // 2) for k in range(6)]
    weight = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([weight], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    after = []
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        after.append(weight.detach().flatten().tolist())
    return dict(start=start.flatten().tolist(), gradients=[g.flatten().tolist() for g in gradients], after=after)


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, made in [("curve", curve()), ("adamw", adamw())]:
        (Path(sys.argv[1]) / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n")
