#!/bin/sh
# Fuzzes the launcher's reader and its inflate: run.sh [SECONDS] [zip|inflate] (default 600 seconds
# each, both). Needs clang with libFuzzer and zlib, on Debian: apt install clang
# libclang-rt-14-dev zlib1g-dev. New inputs go to a scratch folder, not the corpus.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../opencoti_build/pack/launcher
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
  command -v "$clang" >/dev/null && break
done
seconds=${1:-600}

# target NAME SEEDS OPTIONS SOURCE...
target() {
  name=$1 seeds=$2 options=$3
  shift 3
  mkdir "$scratch/$name"
  # zlib comes last: only the inflate target needs it
  "$clang" -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    -I"$source" -o "$scratch/$name/fuzz" "$here/${name}_fuzz.c" "$@" -lz
  (
    cd "$scratch/$name"
    mkdir corpus
    # shellcheck disable=SC2086
    ./fuzz -max_total_time="$seconds" -max_len=8192 -print_final_stats=1 $options \
      -artifact_prefix="$here/" corpus "$here/$seeds"
  )
}

case ${2:-zip} in zip)
  target zip corpus "-dict=$here/zip.dict" "$source/zip.c" "$source/index.c" "$source/args.c" \
    "$source/fail.c" "$source/sha256.c"
esac
case ${2:-inflate} in inflate)
  target inflate streams "" "$source/inflate.c" "$source/fail.c"
esac
