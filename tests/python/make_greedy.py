#!/usr/bin/env python3
"""Writes stages/candle/tests/greedy.jsonl: greedy answers of llama.cpp to problems of the quickstart.

    python3 tests/python/make_greedy.py [COUNT]      needs `pip install gguf` and llama.cpp's server, which it fetches

COUNT problems (110), spread over the file, are asked of llama.cpp's server twice: with the sample model as it lies on disk
(Q4_1; the text of 64 tokens), and with the same weights written out in f32 (32 tokens with their log-probabilities), so that
differences of arithmetic can be told from llama.cpp's rounding of activations.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import gguf
import numpy

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
from llama_compare import MODEL, fetch  # noqa: E402


def write_f32(target):
    """The sample model with every tensor dequantised."""
    source, out = gguf.GGUFReader(MODEL), gguf.GGUFWriter(target, "llama")
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        out.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    out.add_uint32("general.file_type", 0)
    for tensor in source.tensors:
        out.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


@contextlib.contextmanager
def served(program, model, more):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "--parallel", "1",
               "-t", "1", "-tb", "1", "--device", "none", "--no-webui", "--cache-ram", "0", "--skip-chat-parsing", *more]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait()


def ask(url, question, tokens):
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": tokens, "logprobs": True,
            "top_logprobs": 2, "top_k": 0, "top_p": 1, "min_p": 0, "cache_prompt": False}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        choice = json.load(reply)["choices"][0]
    told = {"text": choice["message"]["content"], "finish_reason": choice["finish_reason"]}
    return told, [round(token["logprob"], 5) for token in choice["logprobs"]["content"]]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 110
    program = fetch()
    lines = (ROOT / "datasets/quickstart/problems.jsonl").read_text(encoding="utf-8").splitlines()
    questions = list(dict.fromkeys(json.loads(line)["question"] for line in lines))
    questions = [questions[int(index * len(questions) / count)] for index in range(count)]
    with served(program, MODEL, []) as url:
        quantised = [ask(url, question, 64)[0] for question in questions]
    with tempfile.TemporaryDirectory() as scratch:
        write_f32(f"{scratch}/f32.gguf")
        with served(program, f"{scratch}/f32.gguf", ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]) as url:
            exact = [ask(url, question, 32) for question in questions]
    with open(ROOT / "stages/candle/tests/greedy.jsonl", "w", encoding="utf-8") as out:
        for question, q4_1, (f32, log_probs) in zip(questions, quantised, exact):
            row = {"question": question, "q4_1": q4_1, "f32": {**f32, "log_probs": log_probs}}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
