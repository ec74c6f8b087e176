"""Talks to `pipeline serve` through the official client.

Usage: SERVE_KEY=... python check_serve.py BASE_URL MODEL

Holds chats, streams, several choices, log-probabilities, stop strings, seeds, completions and errors against what the
protocol promises. Prints `N checks ok`; anything else is a non-zero exit with the reason on standard error.
"""

import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import openai

URL, MODEL = sys.argv[1:]
KEY = os.environ["SERVE_KEY"]
CLIENT = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
SUM = [{"role": "user", "content": "What is 2 + 3?"}]
TALE = [{"role": "user", "content": "Tell me a tale of a fox and a lighthouse."}]
CHECKS = []


class Mismatch(Exception):
    """What the server does otherwise."""


def need(condition, message):
    if not condition:
        raise Mismatch(message)


def check(function):
    CHECKS.append(function)
    return function


def ask(messages, **more):
    return CLIENT.chat.completions.create(model=MODEL, messages=messages, **more)


def text(answer, index=0):
    return answer.choices[index].message.content


def fails(kind, code, param, call):
    """`call` must raise this exception of the client, and name the parameter."""
    try:
        call()
    except kind as error:
        need(error.code == code, f"code {error.code!r} instead of {code!r}: {error}")
        need(error.param == param, f"param {error.param!r} instead of {param!r}: {error}")
        return error
    raise Mismatch(f"{kind.__name__} with {code} was not raised")


@check
def models_are_listed():
    names = [model.id for model in CLIENT.models.list()]
    need(MODEL in names and "alias/of-it" in names, names)
    need(CLIENT.models.retrieve("alias/of-it").id == "alias/of-it", "an alias is not found")


@check
def a_chat_is_answered():
    answer = ask(SUM, temperature=0, max_tokens=64)
    need(text(answer).strip(), "an empty answer")
    need(answer.object == "chat.completion" and answer.model == MODEL, answer)
    need(answer.choices[0].message.role == "assistant", answer)
    need(answer.choices[0].finish_reason in ("stop", "length"), answer)
    need(answer.usage.prompt_tokens > 10 and 1 <= answer.usage.completion_tokens <= 64, answer.usage)
    need(answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer.usage)
    need(answer.system_fingerprint, "no fingerprint")


@check
def greedy_answers_agree_whole_and_streamed():
    whole = ask(TALE, temperature=0, max_completion_tokens=40)
    chunks = list(
        ask(TALE, temperature=0, max_completion_tokens=40, stream=True, stream_options={"include_usage": True})
    )
    need(chunks[0].choices[0].delta.role == "assistant", chunks[0])
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    need(streamed == text(whole), f"{streamed!r} is not {text(whole)!r}")
    need(len(chunks) > 10, f"{len(chunks)} chunks for 40 tokens")
    need(chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "length", chunks[-2])
    need(chunks[-1].choices == [] and chunks[-1].usage == whole.usage, chunks[-1])
    need(whole.usage.completion_tokens == 40, whole.usage)


@check
def several_choices_are_several():
    answer = ask(TALE, n=3, seed=5, max_tokens=24)
    need([choice.index for choice in answer.choices] == [0, 1, 2], answer)
    need(len({text(answer, index) for index in range(3)}) == 3, "choices are equal")
    need(answer.usage.completion_tokens == 72, answer.usage)
    parts = {0: "", 1: "", 2: ""}
    for chunk in ask(TALE, n=3, seed=5, max_tokens=24, stream=True):
        parts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    need([parts[index] for index in range(3)] == [text(answer, index) for index in range(3)], "streamed choices differ")


@check
def a_seed_decides_the_answer():
    first, again = (text(ask(TALE, seed=11, max_tokens=24)) for _ in range(2))
    need(first == again, f"one seed, two answers: {first!r} and {again!r}")
    need(text(ask(TALE, seed=12, max_tokens=24)) != first, "two seeds, one answer")
    need(text(ask(TALE, max_tokens=24)) != text(ask(TALE, max_tokens=24)), "without a seed the answers are equal")


@check
def a_seed_decides_whatever_else_is_asked_at_the_same_time():
    alone = [text(ask(TALE, seed=seed, max_tokens=16)) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: text(ask(TALE, seed=seed, max_tokens=16)), range(8)))
    need(alone == together, f"{alone} is not {together}")


@check
def log_probabilities_are_those_of_the_tokens():
    answer = ask(TALE, seed=3, max_tokens=12, logprobs=True, top_logprobs=5)
    tokens = answer.choices[0].logprobs.content
    need(len(tokens) == answer.usage.completion_tokens == 12, f"{len(tokens)} tokens listed")
    joined = b"".join(bytes(token.bytes) for token in tokens).decode()
    need(joined == text(answer), f"{joined!r} is not {text(answer)!r}")
    for token in tokens:
        need(token.logprob <= 0, token)
        tops = [top.logprob for top in token.top_logprobs]
        need(len(tops) == 5 and tops == sorted(tops, reverse=True), token)
        need(sum(math.exp(top) for top in tops) <= 1 + 1e-5, token)
    greedy = ask(TALE, temperature=0, max_tokens=12, logprobs=True, top_logprobs=1).choices[0].logprobs.content
    need(all(token.token == token.top_logprobs[0].token for token in greedy), "greedy tokens are not the likeliest")
    need(ask(SUM, max_tokens=2).choices[0].logprobs is None, "log-probabilities that nobody asked for")


@check
def stop_strings_end_answers_and_are_left_out():
    whole = text(ask(TALE, temperature=0, max_tokens=40))
    word = whole.split()[6]
    answer = ask(TALE, temperature=0, max_tokens=40, stop=["no such text at all", word])
    need(answer.choices[0].finish_reason == "stop", answer)
    need(text(answer) == whole[: whole.index(word)], f"{text(answer)!r}, stopped at {word!r} of {whole!r}")
    streamed = ask(TALE, temperature=0, max_tokens=40, stop=word, stream=True)
    need("".join(chunk.choices[0].delta.content or "" for chunk in streamed) == text(answer), "a stream leaks the stop")


@check
def completions_go_on_from_a_text():
    answer = CLIENT.completions.create(
        model=MODEL, prompt=["One, two, three,", "Once upon a"], temperature=0, max_tokens=8, logprobs=2, n=2
    )
    need(len(answer.choices) == 4, answer)
    need(answer.choices[0].text == answer.choices[1].text != answer.choices[2].text, answer)
    logprobs = answer.choices[0].logprobs
    need("".join(logprobs.tokens) == answer.choices[0].text, logprobs)
    need(len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 8, logprobs)
    chunks = CLIENT.completions.create(
        model=MODEL, prompt="One, two, three,", temperature=0, max_tokens=8, stream=True
    )
    need("".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text, "a stream differs")
    echoed = CLIENT.completions.create(model=MODEL, prompt="Once upon a", echo=True, temperature=0, max_tokens=8)
    need(echoed.choices[0].text == "Once upon a" + answer.choices[2].text, echoed)


@check
def text_of_a_user_never_becomes_a_control_token():
    plain = ask([{"role": "user", "content": "x"}], max_tokens=1).usage.prompt_tokens
    spelt = ask([{"role": "user", "content": "x<|im_end|>"}], max_tokens=1).usage.prompt_tokens
    need(spelt >= plain + 3, f"`<|im_end|>` in a text took {spelt - plain} tokens")


@check
def errors_are_the_clients_own_exceptions():
    bad, tool = openai.BadRequestError, {"type": "function", "function": {"name": "f", "parameters": {}}}
    fails(bad, "unsupported_parameter", "tools", lambda: ask(SUM, tools=[tool]))
    fails(bad, "unsupported_parameter", "response_format", lambda: ask(SUM, response_format={"type": "json_object"}))
    fails(bad, "unsupported_parameter", "logit_bias", lambda: ask(SUM, logit_bias={"5": 1}))
    fails(bad, "unknown_parameter", "grammar", lambda: ask(SUM, extra_body={"grammar": "x"}))
    fails(bad, "invalid_value", "temperature", lambda: ask(SUM, temperature=3))
    fails(bad, "invalid_value", "messages", lambda: ask([]))
    error = fails(bad, "context_length_exceeded", "messages", lambda: ask([{"role": "user", "content": "7 " * 9000}]))
    need("8192" in str(error), error)
    fails(
        openai.NotFoundError, "model_not_found", "model", lambda: CLIENT.chat.completions.create(model="x", messages=SUM)
    )
    wrong = openai.OpenAI(base_url=URL, api_key="wrong", max_retries=0)
    fails(openai.AuthenticationError, "invalid_api_key", None, wrong.models.list)


@check
def a_stream_that_is_closed_early_leaves_the_server_well():
    for _ in range(4):
        stream = ask(TALE, n=4, stream=True, max_tokens=4000)
        next(iter(stream))
        stream.close()
    need(text(ask(SUM, max_tokens=4)), "no answer after closed streams")


def main():
    for function in CHECKS:
        try:
            function()
        except Mismatch as mismatch:
            sys.exit(f"{function.__name__}: {mismatch}")
    print(f"{len(CHECKS)} checks ok")


main()
