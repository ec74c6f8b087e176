#!/usr/bin/env python3
"""Our client beside Python's `openai` AsyncOpenAI, against the scripted server on the same machine, in one run.

    client_bench.py [REQUESTS] [PYTHON_REQUESTS]        (default 300000 and 3000; PYTHON_REQUESTS 0 leaves Python out)

Builds and starts `scripted-server` with a delay of 100 ms, then asks with 1,000 requests in flight: ours through
`Model::ensure` into a call store (parsed and stored), `openai` as its documentation has it. Then a server that allows
1,200 requests a minute, four kinds of it side by side: how many are served in each full minute, how many refused.
CPU seconds are those of the client's process. `make bench-client` runs it with the packages of
tests/python/requirements-bench.txt.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
IN_FLIGHT = 1000
PROMPT = "A shop sells pens in boxes. There are {0} pens on the shelf. How many are there in the evening? {0} + 7"
SYSTEM = "Solve the problem step by step and put the final answer into \\boxed{}."


class Server:
    """A scripted server for the time of a `with`."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([TARGET / "scripted-server", *flags], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def stats(self):
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats") as reply:
            return json.load(reply)

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ours(url, requests, in_flight=IN_FLIGHT, warm_up=2 * IN_FLIGHT):
    program = TARGET / "examples" / "client_bench"
    output = subprocess.run([program, url, str(requests), str(in_flight), str(warm_up)], check=True, capture_output=True, text=True)
    return json.loads(output.stdout)


async def ask_openai(url, requests):
    from openai import AsyncOpenAI

    # its own pool allows 1,000 connections
    client = AsyncOpenAI(base_url=url, api_key="none", timeout=600, max_retries=0)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def ask(number):
        async with places:
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT.format(number)}]
            answer = await client.chat.completions.create(
                model="scripted", messages=messages, temperature=0.8, top_p=1.0, max_tokens=512, seed=number
            )
            return len(answer.choices[0].message.content)

    await asyncio.gather(*(ask(-number) for number in range(1, IN_FLIGHT + 1)))
    begin, cpu = time.monotonic(), own_cpu()
    await asyncio.gather(*(ask(number) for number in range(requests)))
    return measured("openai", requests, time.monotonic() - begin, own_cpu() - cpu)


async def ask_aiohttp(url, requests):
    import aiohttp

    places = asyncio.Semaphore(IN_FLIGHT)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as session:

        async def ask(number):
            async with places:
                messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT.format(number)}]
                body = {"model": "scripted", "messages": messages, "max_tokens": 512, "seed": number}
                async with session.post(url + "/chat/completions", json=body) as reply:
                    return len((await reply.json())["choices"][0]["message"]["content"])

        await asyncio.gather(*(ask(-number) for number in range(1, IN_FLIGHT + 1)))
        begin, cpu = time.monotonic(), own_cpu()
        await asyncio.gather(*(ask(number) for number in range(requests)))
        return measured("aiohttp", requests, time.monotonic() - begin, own_cpu() - cpu)


def own_cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measured(name, requests, seconds, cpu):
    return {
        "name": name,
        "requests": requests,
        "seconds": seconds,
        "requests_a_second": requests / seconds,
        "cpu_ms_a_request": cpu * 1000 / requests,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_process(name, url, requests):
    """Measures in a fresh process, so that neither memory nor CPU of one client is counted for the other."""
    command = [sys.executable, __file__, "--client", name, url, str(requests)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def speed(requests, python_requests):
    rows = []
    clients = [("ours", requests)]
    if python_requests:
        clients += [("aiohttp", python_requests * 5), ("openai", python_requests)]
    for name, count in clients:
        with Server("--delay", "100ms") as server:
            cpu = server.cpu_seconds()
            row = ours(server.url, count) if name == "ours" else in_process(name, server.url, count)
            stats = server.stats()
            row |= {"name": name, "peak_in_flight": stats["peak_in_flight"], "repeated": stats["repeated"]}
            row["server_cpu_ms"] = (server.cpu_seconds() - cpu) * 1000 / stats["requests"]
            rows.append(row)
    print("| client | requests | requests/s | client CPU ms a request | peak RSS MiB | peak in flight at the server "
          "| server CPU ms a request | CPU of ours in it |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        ratio = row["cpu_ms_a_request"] / rows[0]["cpu_ms_a_request"]
        print(f"| {row['name']} | {row['requests']:,} | {row['requests_a_second']:,.0f} "
              f"| {row['cpu_ms_a_request']:.3f} | {row['peak_rss_mib']:.0f} | {row['peak_in_flight']:,} "
              f"| {row['server_cpu_ms']:.3f} | {ratio:.1f} x |")
    kept = rows[0]
    print(f"\nours: {kept['stored']:,} of {kept['requests']:,} answers in the store, {kept['transient']} transient, "
          f"{kept['repeated']} asked twice")


def limited_case(allowed, window, headers, wait):
    flags = ["--requests-per-minute", str(allowed), "--window", window, "--limit-headers", headers]
    with Server(*flags, "--limit-wait", wait, "--delay", "50ms") as server:
        count = allowed * 7 // 2
        row = ours(server.url, count, 64, 0)
        stats = server.stats()
    full = stats["by_minute"][:-1]
    return (f"| {allowed} | {window} | {headers} | {wait} | {', '.join(map(str, full))} | {min(full) / allowed:.3f} "
            f"| {max(full) / allowed:.3f} | {stats['refused_share']:.2%} | {count - row['stored']} |")


def limited():
    cases = [
        (1200, "sliding", "open-ai", "seconds"),
        (1200, "fixed", "ietf", "date"),
        (1200, "sliding", "none", "seconds"),
        (1200, "fixed", "none", "none"),
    ]
    print("\n| allowed a minute | window | headers | refusal says | served in each full minute | least share | most | 429 "
          "| rows lost |")
    print("|---|---|---|---|---|---|---|---|---|")
    # they wait nearly all the time, so they can run side by side
    with ThreadPoolExecutor() as pool:
        for line in pool.map(lambda case: limited_case(*case), cases):
            print(line)


def main():
    if sys.argv[1:2] == ["--client"]:
        name, url, requests = sys.argv[2:]
        ask = {"openai": ask_openai, "aiohttp": ask_aiohttp}[name]
        print(json.dumps(asyncio.run(ask(url, int(requests)))))
        return
    requests, python_requests = ([int(text) for text in sys.argv[1:]] + [300_000, 3000][len(sys.argv) - 1:])[:2]
    build = ["cargo", "build", "--quiet", "--release", "--locked"]
    subprocess.run([*build, "-p", "scripted-server"], cwd=ROOT, check=True)
    subprocess.run([*build, "-p", "pipeline-models", "--example", "client_bench"], cwd=ROOT, check=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    speed(requests, python_requests)
    limited()


if __name__ == "__main__":
    main()
