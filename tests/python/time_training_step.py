"""Seconds of a step of fine-tuning with `torch`, the measure of `stages/train/benches/step.rs`: same shape, same tokens.

    OMP_NUM_THREADS=1 python tests/python/time_training_step.py
"""

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH = 512
ROUNDS = 3

torch.set_num_threads(1)
config = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    rope_theta=100000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    use_cache=False,
    attn_implementation="sdpa",
)
net = LlamaForCausalLM(config).float().train()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
for documents in (1, 4):
    tokens = torch.tensor([[(i * 7919 + index * 104729) % 49152 for i in range(LENGTH)] for index in range(documents)])
    for _ in range(ROUNDS):
        begin = time.process_time()
        optimizer.zero_grad()
        loss = net(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        seconds = time.process_time() - begin
        print(f"{documents} x {LENGTH}: {seconds:.2f} CPU-seconds, {documents * LENGTH / seconds:.0f} tokens per CPU-second")
