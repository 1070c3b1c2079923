"""Unpacks DEFLATE streams (RFC 1951) within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_PIECE = 1 << 20


class Inflater:
    """Decodes a stream that must give exactly ``size`` bytes, fed piece by piece.

    Never gives more than that, whatever the stream says. ``fault`` says what is wrong with the
    stream; after it nothing is decoded.
    """

    def __init__(self, size: int) -> None:
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._left = size
        self.fault: str | None = None

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """The decoded bytes that ``data``, the next piece of the stream, gives, in pieces."""
        while not self.fault:
            if self._stream.eof:
                if len(data):
                    self.fault = "bytes follow the end of the stream"
                return
            limit = min(self._left + 1, _PIECE)
            try:
                # One byte more than may come shows a stream that is too long.
                part = self._stream.decompress(data, limit)
            except zlib.error as error:
                self.fault = f"the stream is damaged ({error})"
                return
            self._left -= len(part)
            if self._left < 0:
                self.fault = "the stream gives more bytes than announced"
                return
            yield part
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                data = self._stream.unused_data
            elif not data and len(part) < limit:
                return

    def finish(self) -> str | None:
        """What is wrong with the stream, after all of it was fed; None if nothing is."""
        if not self.fault and not self._stream.eof:
            self.fault = "the stream is cut off"
        if not self.fault and self._left:
            self.fault = "the stream gives fewer bytes than announced"
        return self.fault


def decompress(data: bytes, size: int) -> bytes | None:
    """The ``size`` bytes of the stream ``data``; None if it is no stream of exactly so many."""
    inflater = Inflater(size)
    made = b"".join(inflater.feed(data))
    return None if inflater.finish() else made
