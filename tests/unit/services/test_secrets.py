"""Secrets: sealed in the database, bound to their name, and readable through a rotation that is cut off anywhere."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from trainshed.domain.access.secrets import Delivery, masked, masked_parts, requested, short_lines, variable_of
from trainshed.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.access.secret_key import SecretKey
from trainshed.services.access.secrets import Secrets
from trainshed.store.access.secrets import SealedSecret, SecretStore
from trainshed.store.database import Database

PROJECT, VALUE = "p-one", "the-planted-value"


class Shed:
    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.path = folder / "secret-key"
        self.store = SecretStore(database)
        self.secrets = Secrets(self.store, SecretKey(self.path))

    def restarted(self) -> Secrets:
        return Secrets(SecretStore(self.database), SecretKey(self.path))

    def row(self, name: str = "one") -> SealedSecret:
        return next(secret for secret in self.store.of(PROJECT) if secret.name == name)


@pytest.fixture
def shed(database: Database, tmp_path: Path) -> Shed:
    return Shed(database, tmp_path)


def test_a_value_is_stored_sealed_and_given_by_name(shed: Shed) -> None:
    body = shed.secrets.set(PROJECT, "one", VALUE, user="ada")
    assert (body["name"], body["user"], body["readable"]) == ("one", "ada", True)
    assert VALUE not in str(body) + str(shed.secrets.listed(PROJECT)) + str(shed.row())
    assert stat.S_IMODE(shed.path.stat().st_mode) == 0o600
    assert shed.restarted().values(PROJECT, ["one"]) == {"one": VALUE}
    first = shed.row()
    shed.secrets.set(PROJECT, "one", VALUE, user="ada")
    assert shed.row().sealed != first.sealed, "equal values look different"
    shed.secrets.delete(PROJECT, "one")
    with pytest.raises(NotFoundError):
        shed.secrets.delete(PROJECT, "one")
    with pytest.raises(FailedPreconditionError, match="has no secret one"):
        shed.secrets.values(PROJECT, ["one"])


def test_a_row_that_is_copied_to_another_name_or_project_does_not_open(shed: Shed) -> None:
    shed.secrets.set(PROJECT, "one", VALUE, user="ada")
    row = shed.row()
    for project, name in ((PROJECT, "two"), ("p-two", "one")):
        shed.store.put(
            SealedSecret(project=project, name=name, key_id=row.key_id, sealed=row.sealed, user="eve", updated_us=1)
        )
        with pytest.raises(DataLossError) as caught:
            shed.secrets.values(project, [name])
        assert VALUE not in str(caught.value)


@pytest.mark.parametrize("value", ["tooless", "x" * 65_537, "nul\0in the middle", None, 12345678])
def test_a_value_that_cannot_be_kept_is_refused_without_being_named(shed: Shed, value: object) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        shed.secrets.set(PROJECT, "one", value, user="ada")
    assert str(value)[:5] not in str(caught.value)
    with pytest.raises(InvalidArgumentError):
        shed.secrets.set(PROJECT, "One", VALUE, user="ada")


def test_a_rotation_leaves_one_key_that_opens_all(shed: Shed) -> None:
    for name in ("one", "two"):
        shed.secrets.set(PROJECT, name, VALUE + name, user="ada")
    before = {shed.row(name).key_id for name in ("one", "two")}
    assert shed.secrets.rotate_key() == {"secrets": 2, "unreadable": []}
    after = {shed.row(name).key_id for name in ("one", "two")}
    assert len(before | after) == 2
    assert before.pop() not in shed.path.read_text()
    assert shed.restarted().values(PROJECT, ["one", "two"]) == {"one": VALUE + "one", "two": VALUE + "two"}


def test_a_rotation_that_is_cut_off_loses_nothing_and_can_be_repeated(shed: Shed) -> None:
    shed.secrets.set(PROJECT, "one", VALUE, user="ada")
    SecretKey(shed.path).add()  # the new key is on disk, and no row has it
    assert shed.restarted().values(PROJECT, ["one"]) == {"one": VALUE}
    assert shed.restarted().rotate_key()["secrets"] == 1
    assert shed.restarted().values(PROJECT, ["one"]) == {"one": VALUE}


def test_a_value_that_is_set_while_the_key_is_rotated_can_be_read(shed: Shed, monkeypatch: pytest.MonkeyPatch) -> None:
    shed.secrets.set(PROJECT, "one", VALUE, user="ada")
    write, rotation = shed.store.put, threading.Thread(target=shed.secrets.rotate_key)

    def put(secret: SealedSecret) -> None:
        rotation.start()
        rotation.join(0.05)  # it ends here, unless it waits for this value
        write(secret)

    monkeypatch.setattr(shed.store, "put", put)
    shed.secrets.set(PROJECT, "two", VALUE, user="ada")
    rotation.join()
    assert shed.restarted().values(PROJECT, ["one", "two"]) == {"one": VALUE, "two": VALUE}


def test_without_its_key_a_secret_is_shown_as_unreadable_until_it_is_set_again(shed: Shed) -> None:
    shed.secrets.set(PROJECT, "one", VALUE, user="ada")
    shed.path.unlink()
    restored = shed.restarted()
    assert [each["readable"] for each in restored.listed(PROJECT)] == [False]
    with pytest.raises(FailedPreconditionError, match="has lost the key of the secret one"):
        restored.values(PROJECT, ["one"])
    assert restored.rotate_key() == {"secrets": 0, "unreadable": [f"projects/{PROJECT}/secrets/one"]}
    restored.set(PROJECT, "one", VALUE, user="ada")
    assert restored.values(PROJECT, ["one"]) == {"one": VALUE}


def test_a_job_asks_by_its_labels(shed: Shed) -> None:
    labels = {"trainshed-secret-wandb-api-key": "variable", "trainshed-secret-cert": "file", "team": "a"}
    assert requested(labels) == {"wandb-api-key": Delivery.VARIABLE, "cert": Delivery.FILE}
    assert variable_of("wandb-api-key") == "WANDB_API_KEY"
    with pytest.raises(InvalidArgumentError, match="must be file or variable"):
        requested({"trainshed-secret-cert": "env"})
    with pytest.raises(FailedPreconditionError, match="has no secret cert"):
        shed.secrets.check(PROJECT, {"trainshed-secret-cert": "file"}, "")
    with pytest.raises(FailedPreconditionError, match="Leave out the labels"):
        shed.secrets.check(PROJECT, {"trainshed-secret-cert": "file"}, "There are none here.")
    shed.secrets.check(PROJECT, {"team": "a"}, "There are none here.")


@pytest.mark.parametrize("name", ["path", "home", "ld-preload", "pythonpath", "tf-config", "trainshed-secrets"])
def test_no_secret_takes_the_place_of_a_variable_that_the_server_gives(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"Ask for {name} as a file"):
        requested({f"trainshed-secret-{name}": "variable"})
    assert requested({f"trainshed-secret-{name}": "file"}) == {name: Delivery.FILE}


def test_each_line_of_a_value_that_is_long_enough_is_masked() -> None:
    value = "-----BEGIN-----\r\nabcdefghijkl\nshort\n"
    assert masked_parts(value) == [
        "-----BEGIN-----",
        "abcdefghijkl",
        r"-----BEGIN-----\r\nabcdefghijkl\nshort",
        r"-----BEGIN-----\nabcdefghijkl\nshort",
    ]
    assert short_lines(value) == ["short"]


def test_texts_that_pass_the_server_are_masked_as_output_is() -> None:
    value = "planted-line\nab=\ncd"
    assert masked(f"so {value}\nab", [value]) == "so [secret]\n[secret]\n[secret]\nab"
    assert masked("ab=\nshort of a plan", [value]) == "ab=\nshort of a plan"
    assert masked(repr({"key": value}), [value]) == "{'key': '[secret]'}"
    assert masked("one and two-values", ["values-one", "two-values"]) == "one and [secret]"
    assert masked("nothing", []) == "nothing"
