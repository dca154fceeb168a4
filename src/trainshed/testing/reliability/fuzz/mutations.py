"""Changes of bytes that break parsers: flips, cuts, repeats, numbers at their limits, and words of the format."""

from __future__ import annotations

import random
from collections.abc import Sequence

MAX_REPEAT_BYTES = 4096
_LIMITS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 2**64 - 1)


def mutated(data: bytes, chance: random.Random, words: Sequence[bytes] = (), others: Sequence[bytes] = ()) -> bytes:
    """Return other bytes: one to four changes, with words of the format and parts of `others`."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = _changed(data, chance, words, others)
    return data


def _changed(data: bytes, chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 1, 2, 4, 16, 64, len(data))))
    match chance.randrange(9):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        case 3:
            bit = data[at : at + 1]
            return data[:at] + bytes(each ^ (1 << chance.randrange(8)) for each in bit) + data[at + 1 :]
        case 4:
            part = data[at:end]
            times = min(chance.choice((1, 2, 50, 1000)), MAX_REPEAT_BYTES // max(len(part), 1))
            return data[:end] + part * times + data[end:]
        case 5 if words:
            return data[:at] + chance.choice(words) + data[at:]
        case 6 if words:
            return data[:at] + chance.choice(words) + data[end:]
        case 7 if others:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            return data[:at] + other[start : start + chance.randrange(1, 200)] + data[end:]
        case _:
            size = chance.choice((1, 2, 4, 8))
            limit = chance.choice(_LIMITS) % (1 << 8 * size)
            number = limit.to_bytes(size, "little" if chance.random() < 0.5 else "big")
            return data[:at] + number + data[at + size :]
