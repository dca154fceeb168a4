"""Whose connection is closed when clients do not read their responses."""

from __future__ import annotations

from trainshed.api.unread_responses import UnreadResponses


class Line:
    """A connection with unread bytes that notes its end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.evicted = False

    def unread_bytes(self) -> int:
        return self.size

    def evict(self) -> None:
        self.evicted = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def unread(lines: list[Line], *, maximum: int) -> UnreadResponses:
    responses = UnreadResponses(maximum, clock=Clock())
    for line in lines:
        responses.update(line)
    return responses


def test_the_one_that_has_read_nothing_for_the_longest_time_is_closed() -> None:
    lines = [Line(30) for _ in range(4)]
    responses = unread(lines, maximum=100)
    assert [line.evicted for line in lines] == [True, True, False, False]
    assert responses.total == 60


def test_one_that_reads_slowly_is_closed_after_those_that_do_not() -> None:
    slow, others = Line(40), [Line(30), Line(30)]
    responses = unread([slow, *others], maximum=101)
    slow.size -= 1
    responses.update(new := Line(10))
    assert [line.evicted for line in (slow, *others, new)] == [False, True, False, False]
    assert responses.total == 39 + 30 + 10


def test_what_was_read_meanwhile_is_room() -> None:
    lines = [Line(50), Line(50)]
    responses = unread(lines, maximum=100)
    lines[0].size = lines[1].size = 10
    responses.update(new := Line(80))
    assert not any(line.evicted for line in (*lines, new))
    assert responses.total == 100


def test_a_response_that_is_too_large_alone_is_still_sent() -> None:
    lines = [Line(10), Line(500)]
    unread(lines, maximum=100)
    assert [line.evicted for line in lines] == [True, False]


def test_room_is_made_for_a_part_of_the_maximum() -> None:
    lines = [Line(1) for _ in range(801)]
    responses = unread(lines, maximum=800)
    assert sum(line.evicted for line in lines) == 101
    assert responses.total == 700


def test_a_connection_is_counted_once_and_not_after_its_end() -> None:
    line = Line(60)
    responses = unread([line], maximum=100)
    line.size = 70
    responses.update(line)
    assert responses.total == 70
    assert responses.is_scarce
    for _ in range(2):
        responses.remove(line)
    assert responses.total == 0
    assert not responses.is_scarce
