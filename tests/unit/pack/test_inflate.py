"""The launcher's inflate, built for this machine with sanitizers, and the one that verify uses."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable

import pytest

from opencoti_build.pack import deflate
from opencoti_build.pack.inflate import Inflater, decompress
from opencoti_build.pack.launcher_build import launcher_sources

# Reads records (announced size, stream's size, stream) and writes (end, size, bytes) for each.
MAIN = r"""
#include "inflate.h"
#include "fail.h"
#include "os.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned char *in, *out;
static size_t left, made, size;
static int refuse;
const char *os_why(void) { return ""; }
void os_say(const char *line) { (void)line; }
static bool take(void *context, void *data, size_t count)
{
    (void)context;
    if (count > left)
        abort();
    memcpy(data, in, count);
    in += count;
    left -= count;
    return refuse != 1;
}
static bool put(void *context, const void *data, size_t count)
{
    (void)context;
    if (count > size - made)
        abort();
    memcpy(out + made, data, count);
    made += count;
    return refuse != 2;
}
int main(int argc, char **argv)
{
    unsigned head[2];
    refuse = argc > 1 ? atoi(argv[1]) : 0;
    while (fread(head, sizeof head, 1, stdin) == 1) {
        unsigned char *stream = malloc(head[1] + 1);
        size = head[0];
        out = malloc(size + 1);
        made = 0;
        left = head[1];
        in = stream;
        if (fread(stream, 1, left, stdin) != left)
            return 2;
        struct inflate_job job = {left, size, take, put, NULL};
        unsigned answer[2] = {inflate_all(&job), 0};
        answer[1] = (unsigned)made;
        fwrite(answer, sizeof answer, 1, stdout);
        fwrite(out, 1, made, stdout);
        free(stream);
        free(out);
    }
    return 0;
}
"""
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
DONE, DAMAGED, STOPPED = 0, 1, 2
Run = Callable[..., list[tuple[int, bytes]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Unpacks streams, each given as (stream, announced size): (end, bytes) of each."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler with sanitizers on this machine")
    folder, source = tmp_path_factory.mktemp("inflate"), launcher_sources()[0].parent
    (folder / "main.c").write_text(MAIN)
    files = [folder / "main.c", source / "inflate.c", source / "fail.c"]
    command = [compiler, "-std=gnu11", *SANITIZE, f"-I{source}", "-o", folder / "t", *files]
    subprocess.run(command, check=True)

    def unpack(*jobs: tuple[bytes, int], refuse: int = 0) -> list[tuple[int, bytes]]:
        text = b"".join(struct.pack("<2I", size, len(data)) + data for data, size in jobs)
        done = subprocess.run([folder / "t", str(refuse)], input=text, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        found, at = [], 0
        while at < len(done.stdout):
            end, size = struct.unpack_from("<2I", done.stdout, at)
            found.append((end, done.stdout[at + 8 : at + 8 + size]))
            at += 8 + size
        assert len(found) == len(jobs)
        return found

    return unpack


def pack(data: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
    return packer.compress(data) + packer.flush()


def samples() -> list[bytes]:
    """Empty, short, random, repeated at all distances, and like a program."""
    chance = random.Random(5)
    noise = chance.randbytes(70_000)
    text = b"".join(b"%d little words, " % chance.randrange(1000) for _ in range(30_000))
    far = noise[:32_768] + noise[:300] + noise[32_768:33_000] + noise[:32_768]
    skewed = bytes(min(int(chance.expovariate(0.3)), 255) for _ in range(200_000))
    return [b"", b"x", noise, bytes(300_000), text, far, skewed, noise[:999] * 400]


STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)


def test_streams_of_two_encoders(run: Run) -> None:
    for data in samples():
        streams = [pack(data, level) for level in range(10)]
        streams += [pack(data, 9, strategy) for strategy in STRATEGIES]
        streams += [deflate.compress(data)]
        assert run(*((stream, len(data)) for stream in streams)) == [(DONE, data)] * len(streams)
        assert [decompress(stream, len(data)) for stream in streams] == [data] * len(streams)


def test_the_encoder_is_the_pinned_one() -> None:
    """Bytes that another encoder, or another level of this one, does not give."""
    data = b"".join(b"%d green bottles, " % (n * n % 97) for n in range(4000))
    crc = zlib.crc32(deflate.compress(data))
    assert deflate.encoder() == {"package": "deflate", "version": "0.9.0", "level": 10}
    assert (len(deflate.compress(data)), crc) == (616, 4161474149)


def both(run: Run, *jobs: tuple[bytes, int]) -> None:
    """Both refuse all, and neither gives more bytes than announced."""
    for (_, size), (end, made) in zip(jobs, run(*jobs), strict=True):
        assert end == DAMAGED and len(made) <= size
    assert [decompress(*job) for job in jobs] == [None] * len(jobs)


def test_wrong_sizes_and_ends(run: Run) -> None:
    data = b"to be or not to be " * 60
    for stream in (pack(data, 9), pack(data, 9, zlib.Z_FIXED), pack(data, 0)):
        size = len(data)
        both(run, *((stream[:length], size) for length in range(len(stream))))
        both(run, (stream, size - 1), (stream, size + 1), (stream, 0), (stream + b"\0", size))
        both(run, (stream + stream, size), (stream + stream, 2 * size))
        both(run, (b"\0" + stream, size), (stream[1:], size))


def test_bits_after_the_end_must_be_zero(run: Run) -> None:
    """The launcher looks; verify knows the sum of the stream."""
    assert run((b"\x03\x00", 0)) == [(DONE, b"")]
    assert [end for end, _ in run(*((bytes([3, 1 << n]), 0) for n in range(2, 8)))] == [DAMAGED] * 6


def test_more_output_than_announced(run: Run) -> None:
    bomb = pack(bytes(50_000_000), 9)
    both(run, (bomb, 0), (bomb, 1), (bomb, 131_072), (bomb, 49_999_999))
    inflater = Inflater(1000)
    assert sum(map(len, inflater.feed(bomb))) <= 1000 and inflater.fault
    assert list(inflater.feed(bomb)) == []


def bits(*fields: tuple[int, int]) -> bytes:
    """(value, bits) fields, lowest bit first."""
    value = at = 0
    for field, count in fields:
        value |= field << at
        at += count
    return value.to_bytes((at + 7) // 8, "little")


def code_lengths(**lengths: int) -> list[tuple[int, int]]:
    """The 19 lengths of the code for code lengths; ``s16=1`` is symbol 16."""
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    return [(lengths.get(f"s{symbol}", 0), 3) for symbol in order]


def own(literals: int, distances: int, *rest: tuple[int, int]) -> bytes:
    """A last block with codes of its own."""
    return bits((1, 1), (2, 2), (literals - 257, 5), (distances - 1, 5), (15, 4), *rest)


HOSTILE = {
    "reserved block kind": bits((1, 1), (3, 2)),
    "stored: sizes disagree": bits((1, 1), (0, 7), (1, 16), (0xFFFF, 16), (65, 8)),
    "stored: cut off": bits((1, 1), (0, 7), (9, 16), (0xFFF6, 16), (65, 8)),
    "match before the start": bits((1, 1), (1, 2), (0b1000000, 7), (0, 5), (0, 7)),
    "literal 286": bits((1, 1), (1, 2), (0b01100011, 8), (0, 24)),
    "distance 30": bits((1, 1), (1, 2), (0, 8), (0b1000000, 7), (0b01111, 5), (0, 24)),
    "287 literals": own(287, 1, *code_lengths(s0=1, s1=1), (0, 64)),
    "31 distances": own(257, 31, *code_lengths(s0=1, s1=1), (0, 64)),
    "no code lengths": own(257, 1, *code_lengths(), (0, 64)),
    "lonely code length": own(257, 1, *code_lengths(s18=1), (0, 64)),
    "too many code lengths": own(257, 1, *code_lengths(s0=1, s1=1, s2=1), (0, 64)),
    "repeat of nothing": own(257, 1, *code_lengths(s0=1, s16=1), (1, 1), (0, 64)),
    "repeat past the end": own(257, 1, *code_lengths(s0=1, s18=1), *[(1, 1), (127, 7)] * 2),
    "no end of block": own(
        257, 1, *code_lengths(s1=1, s18=1), (0, 2), (1, 1), (127, 7), (1, 1), (106, 7), (0, 64)
    ),
    "too many literals": own(257, 1, *code_lengths(s1=1, s18=1), (0, 3), (0, 64)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_streams(run: Run, name: str) -> None:
    both(run, *((HOSTILE[name], size) for size in (0, 1, 2, 1000)))


def test_the_hostile_streams_are_one_step_from_good() -> None:
    """The builder of the streams above makes good ones too."""
    lengths = code_lengths(s1=1, s18=1)
    # zeros for 0 to 137 and 138 to 254, one bit for 255 and 256 each; one unused distance
    good = own(257, 1, *lengths, (1, 1), (127, 7), (1, 1), (106, 7), (0, 3), (0, 1), (1, 1))
    assert decompress(good, 1) == b"\xff"
    assert decompress(bits((1, 1), (0, 7), (1, 16), (0xFFFE, 16), (65, 8)), 1) == b"A"


def test_changed_streams(run: Run) -> None:
    """Any change: the same verdict as zlib's, and never more bytes than announced."""
    chance = random.Random(9)
    data = samples()[4][:3000] + samples()[2][:500]
    jobs = []
    for stream in (pack(data, 9), pack(data, 1, zlib.Z_FIXED), deflate.compress(data)):
        for _ in range(300):
            changed = bytearray(stream)
            for _ in range(chance.choice([1, 1, 2, 5])):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            jobs.append((bytes(changed), len(data)))
    for job, (end, made) in zip(jobs, run(*jobs), strict=True):
        other = decompress(*job)
        assert len(made) <= len(data)
        # zlib does not look at the bits after the end in the last byte
        assert (made == other) if end == DONE else (other is None or job[0][-1])


def test_a_callback_that_fails_ends_it(run: Run) -> None:
    data = bytes(400_000)
    for refuse in (1, 2):
        assert run((pack(data, 9), len(data)), refuse=refuse)[0][0] == STOPPED


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_pieces(step: int) -> None:
    for data in samples():
        stream, inflater = pack(data, 6), Inflater(len(data))
        if step == 1 and len(stream) > 50_000:
            continue
        made = [
            part
            for at in range(0, len(stream), step)
            for part in inflater.feed(memoryview(stream)[at : at + step])
        ]
        assert inflater.finish() is None and b"".join(made) == data
