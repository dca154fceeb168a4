"""Who makes room for a new connection: of its address or of all, unauthenticated ones first."""

from __future__ import annotations

import pytest

from trainshed.connections import Connections, ExemptAddresses


class Line:
    """A connection that notes its end."""

    def __init__(self, *, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def test_the_one_that_is_idle_the_longest_makes_room() -> None:
    table = Connections(maximum=3)
    first, second, busy, new = Line(), Line(), Line(is_idle=False), Line()
    for line in (busy, first, second):
        table.add(line, "127.0.0.1")
    table.use(first)
    assert table.add(new, "127.0.0.1")
    assert [line.evicted for line in (busy, first, second, new)] == [False, False, True, False]
    assert len(table) == 3


def test_unauthenticated_ones_make_room_before_those_with_a_token() -> None:
    table = Connections(maximum=2)
    known, stranger = Line(), Line()
    table.add(known, "127.0.0.1")
    table.set_authenticated(known)
    table.add(stranger, "127.0.0.1")
    assert table.add(Line(), "127.0.0.1")
    assert (known.evicted, stranger.evicted) == (False, True)


def test_there_is_no_room_while_all_are_busy() -> None:
    table = Connections(maximum=1)
    busy = Line(is_idle=False)
    table.add(busy, "127.0.0.1")
    assert not table.add(Line(), "127.0.0.1")
    busy.is_idle = True
    assert table.add(Line(), "127.0.0.1")


def test_an_address_makes_room_for_itself() -> None:
    table = Connections(maximum=10, per_address=2)
    other, lines = Line(), [Line() for _ in range(4)]
    table.add(other, "10.0.0.2")
    for line in lines:
        assert table.add(line, "10.0.0.1")
    assert [line.evicted for line in (other, *lines)] == [False, True, True, False, False]
    for line in (other, *lines):
        table.remove(line)
    assert len(table) == 0
    assert table.add(Line(), "10.0.0.1")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.7", "10.1.2.3", ""])
def test_an_address_of_many_clients_has_no_limit_of_its_own(address: str) -> None:
    table = Connections(maximum=10, per_address=1, exempt=ExemptAddresses("10.0.0.7, 10.1.0.0/16"))
    first = Line()
    assert table.add(first, address)
    assert table.add(Line(), address)
    assert not first.evicted


@pytest.mark.parametrize("names", ["proxy.example", "10.0.0.0/8/9", "10.0.0.1/8"])
def test_a_reverse_proxy_is_an_address_or_a_network(names: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear to be|has host bits set"):
        ExemptAddresses(names)
