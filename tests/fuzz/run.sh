#!/bin/sh
# Fuzzes the launcher's reader: run.sh [SECONDS] (default 600). Needs clang with libFuzzer, on
# Debian: apt install clang libclang-rt-14-dev. New inputs go to a scratch folder, not the corpus.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../opencoti_build/pack/launcher
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/corpus"
for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
  command -v "$clang" >/dev/null && break
done
"$clang" -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$source" -o "$scratch/fuzz" "$here/zip_fuzz.c" \
  "$source/zip.c" "$source/index.c" "$source/args.c" "$source/fail.c" "$source/sha256.c"
cd "$scratch"
./fuzz -max_total_time="${1:-600}" -max_len=8192 -print_final_stats=1 -dict="$here/zip.dict" \
  -artifact_prefix="$here/" corpus "$here/corpus"
