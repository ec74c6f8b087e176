"""Runs in the sandbox beside the program (main.py).

Calls one function of the program, or runs statements on it, and says on descriptor 3 what came of it,
one line for each result. What a call should give is not known here, so there is nothing to find: a
program that patches, walks frames or forges lines can only say something that is then compared outside.
"""

import json
import os
import sys

MODULES = (
    "bisect collections copy datetime decimal fractions functools heapq itertools json math operator os random re "
    "statistics string sys time typing"
)
# what programs for judges use without importing it, because the judge has imported it for them
NAMES = {
    "typing": "Any Callable Deque DefaultDict Dict FrozenSet Generator Iterable Iterator List Mapping NamedTuple "
    "Optional Sequence Set Tuple Type TypeVar Union",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "bisect": "bisect_left bisect_right insort insort_left insort_right",
    "functools": "cache cached_property cmp_to_key lru_cache partial reduce total_ordering",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle groupby islice pairwise "
    "permutations product repeat starmap takewhile zip_longest",
    "math": "ceil comb cos dist e exp factorial floor gcd hypot inf isclose isqrt lcm log log10 log2 nan perm pi prod "
    "sin sqrt tan trunc",
    "copy": "deepcopy",
    "string": "ascii_letters ascii_lowercase ascii_uppercase",
}
LARGEST = 8_000_000  # letters of a result
DEEPEST = 190  # lists inside each other


def drive():
    # taken before the program can replace them
    write, leave, build, run, kind, dumps = os.write, os._exit, compile, exec, type, json.dumps
    every, wrong, unknown = BaseException, AssertionError, (NameError, ImportError)
    lift = getattr(sys, "set_int_max_str_digits", lambda digits: None)
    limit = getattr(sys, "get_int_max_str_digits", lambda: 0)()
    nonce, mode, rest = sys.stdin.buffer.read().split(b"\n", 2)

    def say(word, value):
        data = nonce + b" " + word + b" " + dumps(value).encode() + b"\n"
        while data:
            data = data[write(3, data) :]

    def told(error):
        try:
            if kind(error) in (SyntaxError, IndentationError, TabError):
                return "%s: %s (line %s)" % (kind(error).__name__, error.msg, error.lineno)
            text = "%s: %s" % (kind(error).__name__, str(error)[:400])
            return text.encode("utf-8", "replace").decode()
        except every:
            return "an exception that cannot be shown"

    def give(space, code):
        """The usual names that `code` uses and nothing has defined."""
        names, codes = set(), [code]
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes.extend(part for part in code.co_consts if kind(part) is kind(code))
        for module in MODULES.split():
            if module in names:
                space.setdefault(module, __import__(module))
        for module, words in NAMES.items():
            for word in words.split():
                if word in names and word not in space:
                    try:
                        space[word] = getattr(__import__(module), word)
                    except AttributeError:
                        pass  # an older Python

    def load(space):
        try:
            with open("main.py", "rb") as file:
                code = build(file.read(), "main.py", "exec", 0, True)
        except every as error:
            say(b"syntax", told(error))
            leave(1)
        give(space, code)
        return code

    def start(space, code):
        try:
            run(code, space)
        except every as error:
            say(b"raised", told(error))
            leave(1)

    def target(space, entry):
        owner, _, name = entry.rpartition(".")
        if owner:
            return getattr(space[owner](), name)
        if name not in space and "Solution" in space:
            return getattr(space["Solution"](), name)
        return space[name]

    def call(space, entry, arguments):
        lift(0)
        arguments = json.loads(arguments)
        lift(limit)
        start(space, load(space))
        try:
            found = target(space, entry)
        except (KeyError, AttributeError):
            say(b"missing", entry)
            leave(1)
        except every as error:
            say(b"raised", told(error))
            leave(1)
        try:
            value = found(*arguments)
        except every as error:
            say(b"raised", told(error))
            leave(1)
        why = strange(value)
        if why is not None:
            say(b"strange", why)
        else:
            lift(0)
            say(b"value", value)

    maps = [dict]  # and these three, exactly, once the program has loaded them
    items, span = dict.items, int.bit_length

    def strange(value):
        """Why `value` is not plain data: exact types only, so that nothing in it can act."""
        if "collections" in sys.modules:
            known = sys.modules["collections"]
            maps.extend(vars(known).get(name) for name in ("Counter", "OrderedDict", "defaultdict"))
        size, open_lists = 0, [([value], 0)]
        while open_lists:
            group, depth = open_lists.pop()
            for item in group:
                of = kind(item)
                size += 1
                if of is str:
                    size += len(item)
                    try:
                        item.encode()
                    except UnicodeEncodeError:
                        return "text with half of a surrogate pair"
                elif of is int:
                    size += span(item) // 3
                elif of is list or of is tuple:
                    open_lists.append((item, depth + 1))
                elif of in maps:
                    for key, inner in items(item):
                        if kind(key) not in (str, int, float, bool, kind(None)):
                            return "a key of type " + kind(key).__name__
                        open_lists.append(((key, inner), depth + 1))
                elif of is not float and of is not bool and item is not None:
                    return "a value of type " + of.__name__
                if size > LARGEST:
                    return "more than %d letters of data" % LARGEST
                if depth > DEEPEST:
                    return "lists nested deeper than %d" % DEEPEST
        return None

    def check(space, tests):
        tests = json.loads(tests)
        try:
            setup = build(tests["setup"], "setup", "exec", 0, True)
            parts = [build(text, "test %d" % (at + 1), "exec", 0, True) for at, text in enumerate(tests["statements"])]
        except every as error:
            say(b"tests", told(error))
            leave(1)
        code, is_late = load(space), False
        give(space, setup)
        try:
            run(setup, space)
        except unknown:
            is_late = True  # it speaks of what the program defines
        except every as error:
            say(b"tests", told(error))
            leave(1)
        start(space, code)
        if is_late:
            start(space, setup)
        for at, part in enumerate(parts):
            give(space, part)
            try:
                run(part, space)
            except wrong as error:
                say(b"failed", [at, told(error)])
            except every as error:
                say(b"broke", [at, told(error)])
            else:
                say(b"passed", [at, ""])
                continue
            if not tests["all"]:
                leave(1)
        say(b"done", len(parts))

    module = kind(sys)("solution")
    sys.modules["solution"] = module
    module.__file__ = "main.py"
    if mode == b"call":
        entry, arguments = rest.split(b"\n", 1)
        call(module.__dict__, entry.decode(), arguments)
    else:
        check(module.__dict__, rest)
    # neither exit handlers nor threads of the program run on
    leave(0)


drive()
