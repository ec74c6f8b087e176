"""Loads a model that `stages/train/examples/save_tiny_model.rs` saved, and compares what `transformers` makes of it.

    cargo run -p stage-train --example save_tiny_model -- FOLDER
    python tests/python/check_saved_model.py FOLDER

`FOLDER/expected.json` holds a conversation, its ids with the prompt of an answer, and the logits of the last row.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

for kind in ("llama-f32", "qwen2-f32", "qwen2-bf16"):
    folder = Path(sys.argv[1]) / kind
    expected = json.loads((folder.parent / f"{kind}.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    net, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert net.dtype == {"f32": torch.float32, "bf16": torch.bfloat16}[kind.split("-")[1]], net.dtype
    ids = tokenizer.apply_chat_template(expected["messages"], add_generation_prompt=True, return_dict=False)
    assert ids == expected["ids"], (ids, expected["ids"])
    assert tokenizer.eos_token_id == net.config.eos_token_id == 257, tokenizer.eos_token_id
    assert GenerationConfig.from_pretrained(folder).eos_token_id == [257]
    logits = net.float().eval()(torch.tensor([ids])).logits[0, -1]
    off = (logits - torch.tensor(expected["logits"])).abs().max().item()
    print(f"{kind}: {sum(p.numel() for p in net.parameters())} parameters, largest difference of logits {off:.1e}")
    assert off < 1e-4, off
