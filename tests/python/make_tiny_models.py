"""Writes the tiny random nets that `stages/candle/tests` hold the decoder against, with what `transformers` computes.

Run once, with `torch` and `transformers` installed, from the root of the repository:

    python tests/python/make_tiny_models.py stages/candle/tests/fixtures

Each folder holds a net as Hugging Face lays it out, and `expected.safetensors`: the tokens of two documents, their logits
in f32, and gradients of the mean negative log-likelihood of the documents' next tokens for some tensors.
"""

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

SIZES = dict(
    vocab_size=192,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.15,
    max_position_embeddings=512,
    attn_implementation="eager",
    bos_token_id=1,
    eos_token_id=2,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=10_000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
LINEAR = dict(rope_type="linear", rope_theta=10_000.0, factor=2.5)
NETS = {
    "llama": (LlamaForCausalLM, LlamaConfig, dict(tie_word_embeddings=True), "180KB", torch.float32),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, dict(tie_word_embeddings=False), "1GB", torch.float32),
    "llama3-bf16": (
        LlamaForCausalLM,
        LlamaConfig,
        dict(tie_word_embeddings=True, num_hidden_layers=1, rope_parameters=LLAMA3),
        "1GB",
        torch.bfloat16,
    ),
    "linear-f16": (
        LlamaForCausalLM,
        LlamaConfig,
        dict(tie_word_embeddings=True, num_hidden_layers=1, rope_parameters=LINEAR, head_dim=24),
        "1GB",
        torch.float16,
    ),
}
LENGTHS = (150, 37)


def make(folder: Path, name: str) -> None:
    net_class, config_class, options, shard, dtype = NETS[name]
    torch.manual_seed(sum(name.encode()))
    net = net_class(config_class(**{**SIZES, **options})).eval()
    with torch.no_grad():
        for key, weight in net.named_parameters():
            if "norm" in key:
                weight.add_(0.3 * torch.randn_like(weight))
            if key.endswith(".bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
    shutil.rmtree(folder, ignore_errors=True)
    net.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    # read back: conversion of the net in memory rounds the frequencies of rotary positions too
    net = net_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    documents = [torch.randint(0, SIZES["vocab_size"], (1, length)) for length in LENGTHS]
    logits = [net(document).logits[0] for document in documents]
    losses = [
        torch.nn.functional.cross_entropy(row[:-1], document[0, 1:], reduction="sum")
        for row, document in zip(logits, documents)
    ]
    (sum(losses) / sum(length - 1 for length in LENGTHS)).backward()
    expected = {"tokens": torch.cat(documents, 1)[0], "logits": torch.cat(logits).detach()[::3].contiguous()}
    for key, weight in net.named_parameters():
        is_small = weight.numel() <= 64 * 64 and ("layers.0" in key or weight.dim() == 1)
        if dtype == torch.float32 and (is_small or key == "model.embed_tokens.weight"):
            expected["grad." + key] = weight.grad.contiguous()
    save_file(expected, folder / "expected.safetensors")


if __name__ == "__main__":
    for net_name in NETS:
        make(Path(sys.argv[1]) / net_name, net_name)
