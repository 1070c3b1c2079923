#!/bin/sh
# Tries the series on the newest upstream and reports what became of each patch.
#
# usage: sh ci/canary.sh [OUT]        (run in a checkout, with opencoti-build installed)
#
# Nothing of the checkout is changed: a copy of its recipes, pins and patches is used. OUT (default
# canary-out/) receives
#   track.txt     the newest upstream, and how many lines it changes in files that patches touch
#   table.txt     every patch: clean, offset, three-way, conflict or already upstream
#   table.json    the same for machines
#   rebase.txt    the rebase with remembered resolutions, and its proof
#   conflict.diff the first conflict with both sides, when there was one
#   patches/      the series on the newest upstream, when no hand was needed
# Exit status: 0 the series can be moved as it is, 4 a patch needs a hand, others as the program.
set -eu

out=${1:-canary-out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

cp -R recipes vendor patches "$work/"
OPENCOTI_BUILD_PROJECT=$work
export OPENCOTI_BUILD_PROJECT

opencoti-build sources track llama.cpp --write --as llama.cpp-canary >"$out/track.txt"
cat "$out/track.txt"

status=0
opencoti-build series rebase --onto llama.cpp-canary --dry-run --json >"$out/table.json" \
    2>"$out/table.err" || status=$?
case $status in 0 | 4) ;; *) cat "$out/table.err" >&2; exit "$status" ;; esac
opencoti-build series rebase --onto llama.cpp-canary --dry-run --quiet >"$out/table.txt" \
    2>/dev/null || true
cat "$out/table.txt"

status=0
opencoti-build series rebase --onto llama.cpp-canary --remembered --quiet \
    --workspace "$work/space" >"$out/rebase.txt" 2>&1 || status=$?
cat "$out/rebase.txt"
if [ "$status" -eq 0 ]; then
    rm -rf "$out/patches"
    cp -R "$work/patches" "$out/patches"
elif [ -d "$work/space-resolve/.git" ]; then
    git -C "$work/space-resolve" diff >"$out/conflict.diff"
fi
exit "$status"
