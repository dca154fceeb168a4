"""Buckets in a real browser: made, filled, looked into, emptied, whatever the objects are called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from trainshed.testing.processes.servers import Caller, RunningServer

PROJECT = "console-buckets"
Open = Callable[..., Page]

HOSTILE = (
    "<img src=x onerror=document.title='harmed'>.txt",
    "100% sure?#1&2.txt",
    "%2F%2e%2e.txt",
    " two  spaces .txt",
    "quote'\"`s\\.txt",
    "ünï-名前-🚂.txt",
)


class Bucket:
    """A bucket of its own for a test."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self.server, self.name = server, name
        server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": name})

    def put(self, name: str, data: bytes, kind: str = "text/plain") -> None:
        target = f"/upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(name, safe='')}"
        headers = {"content-type": kind}
        status, answer = Caller(self.server.url)("POST", target, token=self.server.token, body=data, headers=headers)
        assert status == 200, answer

    def names(self) -> list[str]:
        listed = self.server.call("GET", f"/storage/v1/b/{self.name}/o")
        return [item["name"] for item in listed.get("items", ())]

    def read(self, name: str) -> bytes:
        path = f"/download/storage/v1/b/{self.name}/o/{quote(name, safe='')}?alt=media"
        status, data = Caller(self.server.url)("GET", path, token=self.server.token)
        assert status == 200
        return bytes(data)


@pytest.fixture
def make(server: RunningServer) -> Callable[[str], Bucket]:
    return lambda name: Bucket(server, name)


def row(page: Page, name: str) -> Locator:
    return page.get_by_test_id("objects").locator("tbody tr").filter(has=page.get_by_text(name, exact=True))


def test_a_bucket_is_made_and_deleted(open_console: Open, server: RunningServer) -> None:
    page = open_console(PROJECT, "/buckets")
    page.get_by_test_id("create-bucket").click()
    page.get_by_test_id("bucket-name").fill("Not A Bucket")
    page.get_by_test_id("create-bucket-go").click()
    expect(page.get_by_role("alert")).to_contain_text("Not A Bucket")  # the server's own sentence, and the form stays
    page.get_by_test_id("bucket-name").fill("console-made")
    page.get_by_test_id("bucket-name").press("Enter")
    expect(page.get_by_test_id("gs-address")).to_have_text("gs://console-made/")
    expect(page.get_by_test_id("empty")).to_contain_text("trainshed buckets cp")
    page.get_by_role("link", name="Buckets", exact=True).last.click()
    page.get_by_role("button", name="Delete bucket console-made").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_role("link", name="console-made")).to_have_count(0)


def test_names_of_any_kind_are_shown_opened_downloaded_and_deleted(
    make: Callable[[str], Bucket], open_console: Open
) -> None:
    bucket = make("console-hostile")
    for name in HOSTILE:
        bucket.put(f"in/{name}", f"the words of {name}".encode(), "text/html")
    page = open_console(PROJECT, f"/buckets/{bucket.name}/in/")
    for name in HOSTILE:
        page.get_by_test_id("object").filter(has_text=name).click()
        expect(page.get_by_test_id("preview-text")).to_have_text(f"the words of {name}")
        address = page.get_by_test_id("preview").locator("..").get_by_test_id("gs-address")
        assert address.text_content() == f"gs://{bucket.name}/in/{name}"
        with page.expect_download() as download:
            page.get_by_test_id("preview-download").click()
        assert Path(download.value.path()).read_text() == f"the words of {name}"
        page.keyboard.press("Escape")
    for name in HOSTILE:
        page.get_by_role("button", name=f"Delete {name}", exact=True).click()
        page.get_by_test_id("confirm-yes").click()
        expect(page.get_by_test_id("object").filter(has_text=name)).to_have_count(0)
    assert bucket.names() == []
    assert "harmed" not in page.title()


def test_folders_with_odd_names_are_walked_by_links(make: Callable[[str], Bucket], open_console: Open) -> None:
    bucket = make("console-folders")
    bucket.put("a <b>bold<b> 100%/x?#y/deep.txt", b"deep")
    page = open_console(PROJECT, f"/buckets/{bucket.name}")
    page.get_by_role("link", name="a <b>bold<b> 100%/").click()
    page.get_by_role("link", name="x?#y/").click()
    expect(page.get_by_test_id("object")).to_have_text("deep.txt")
    expect(page.get_by_test_id("gs-address")).to_have_text(f"gs://{bucket.name}/a <b>bold<b> 100%/x?#y/")
    page.get_by_role("link", name="a <b>bold<b> 100%").click()
    expect(page.get_by_role("link", name="x?#y/")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="x?#y/")).to_be_visible()


def test_files_are_uploaded_by_a_button_and_by_dropping(
    make: Callable[[str], Bucket], open_console: Open, tmp_path: Path
) -> None:
    bucket = make("console-uploads")
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "two & <i>.txt").write_text("two")
    page = open_console(PROJECT, f"/buckets/{bucket.name}/to/")
    page.get_by_test_id("file-input").set_input_files(tmp_path / "one.txt")
    expect(page.get_by_test_id("uploads-sum")).to_have_text("1 of 1 uploaded")
    page.get_by_test_id("folder-input").set_input_files(tmp_path / "sub")
    expect(page.get_by_test_id("uploads-sum")).to_have_text("2 of 2 uploaded")
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["dropped"], "three.txt", {type: "text/plain"}));
            const place = document.querySelector("[data-testid=browser]");
            place.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    expect(page.get_by_test_id("object").filter(has_text="three.txt")).to_be_visible()
    assert sorted(bucket.names()) == ["to/one.txt", "to/sub/two & <i>.txt", "to/three.txt"]
    assert bucket.read("to/three.txt") == b"dropped"


def test_an_upload_can_be_given_up(make: Callable[[str], Bucket], open_console: Open, tmp_path: Path) -> None:
    bucket = make("console-cancel")
    (tmp_path / "large.bin").write_bytes(bytes(1 << 20))
    page = open_console(PROJECT, f"/buckets/{bucket.name}/")
    page.route("**/upload/**", lambda route: None)  # a network that takes for ever
    page.get_by_test_id("file-input").set_input_files(tmp_path / "large.bin")
    expect(page.get_by_test_id("uploads-sum")).to_have_text("0 of 1 uploaded, 1 to go")
    page.get_by_role("button", name="Give up large.bin").click()
    expect(page.get_by_test_id("uploads")).to_contain_text("given up")
    expect(page.get_by_test_id("uploads-sum")).to_have_text("0 of 1 uploaded")
    assert bucket.names() == []


def test_previews_of_json_pictures_long_texts_and_bytes(make: Callable[[str], Bucket], open_console: Open) -> None:
    bucket = make("console-previews")
    bucket.put("data.json", b'{"a":[1,{"b":"<script>"}]}', "application/json")
    bucket.put("picture.svg", b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"/>', "image/svg+xml")
    bucket.put("long.log", b"".join(b"line %06d\n" % n for n in range(60_000)))
    bucket.put("bytes.bin", bytes(range(256)), "application/octet-stream")
    page = open_console(PROJECT, f"/buckets/{bucket.name}/")

    def look(name: str) -> None:
        page.get_by_test_id("object").filter(has_text=name).click()

    look("data.json")
    expect(page.get_by_test_id("preview-text")).to_contain_text('      "b": "<script>"')
    page.keyboard.press("Escape")
    look("picture.svg")
    expect(page.get_by_test_id("preview")).to_contain_text("40 × 20")
    page.keyboard.press("Escape")
    look("long.log")
    expect(page.get_by_test_id("preview")).to_contain_text("The first 256 KB of")
    text = page.get_by_test_id("preview-text").text_content() or ""
    assert len(text) == 256 * 1024
    page.keyboard.press("Escape")
    look("bytes.bin")
    expect(page.get_by_test_id("preview")).to_contain_text("00 01 02 03")


def test_many_objects_come_in_pages_and_a_folder_is_deleted_with_its_number(
    make: Callable[[str], Bucket], open_console: Open
) -> None:
    bucket = make("console-many")
    for number in range(450):
        bucket.put(f"many/object-{number:04}.txt", b"12345")
    bucket.put("kept.txt", b"kept")
    page = open_console(PROJECT, f"/buckets/{bucket.name}/many/")
    expect(page.get_by_test_id("object")).to_have_count(200)
    page.get_by_test_id("next").click()
    page.get_by_test_id("next").click()
    expect(page.get_by_test_id("object")).to_have_count(50)
    expect(page.get_by_test_id("object").last).to_have_text("object-0449.txt")
    page.get_by_test_id("previous").click()
    expect(page.get_by_test_id("object").first).to_have_text("object-0200.txt")

    page.get_by_label("Select many/object-0200.txt").check()
    page.get_by_label("Select many/object-0201.txt").check()
    page.get_by_test_id("delete-selected").click()
    expect(page.get_by_test_id("dialog")).to_contain_text("2 objects of 10 B")
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("object").first).to_have_text("object-0202.txt")

    page.get_by_role("link", name=bucket.name).click()
    page.get_by_role("button", name="Delete many/").click()
    expect(page.get_by_role("dialog", name="Delete many/?")).to_contain_text("448 objects")
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("toast").last).to_contain_text("Deleted 448 objects.")
    assert bucket.names() == ["kept.txt"]


def test_what_others_write_appears_without_a_reload(make: Callable[[str], Bucket], open_console: Open) -> None:
    bucket = make("console-live")
    page = open_console(PROJECT, f"/buckets/{bucket.name}/")
    expect(page.get_by_test_id("empty")).to_be_visible()
    bucket.put("news.txt", b"new")
    expect(page.get_by_test_id("object")).to_have_text("news.txt")


def test_a_narrow_screen_shows_all_of_a_row(make: Callable[[str], Bucket], open_console: Open) -> None:
    bucket = make("console-narrow")
    bucket.put("a-rather-long-name-of-an-object-that-has-to-break-somewhere.txt", b"x")
    page = open_console(PROJECT, f"/buckets/{bucket.name}/", width=360, height=800)
    expect(page.get_by_test_id("object")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(page.get_by_role("link", name=re.compile("^Download"))).to_be_in_viewport()
