"""What is read out of installed packages and out of uv's plans."""

from __future__ import annotations

from pathlib import Path

from trainshed.node.package_install import missing_requirements, requirements


def test_requirements_are_what_packages_say_but_for_extras_and_each_other(tmp_path: Path) -> None:
    for name, lines in {
        "trainer-0.1": ["numpy>=1.20", "my_lib (>=1)", "pytest ; extra == 'test'"],
        "My_Lib-2.0": ["numpy>=1.20", "six ; python_version < '4'"],
    }.items():
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        head = "".join(f"Requires-Dist: {line}\n" for line in lines)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: x\n{head}\nA text.\nRequires-Dist: not-this\n")
    assert requirements(str(tmp_path)) == ["numpy>=1.20", "six ; python_version < '4'"]
    assert requirements(str(tmp_path / "nothing")) == []


def test_a_plan_of_uv_tells_what_is_lacking() -> None:
    plan = (
        "Resolved 4 packages in 10ms\nWould download 2 packages\nWould install 3 packages\n"
        " - numpy==1.0\n + numpy==2.1.0\n \x1b[32m+\x1b[39m \x1b[1msix\x1b[0m\x1b[2m==1.17.0\x1b[0m\n"
        " + thing==1.0 (from https://example.com/thing-1.0.zip)\n"
    )
    assert missing_requirements(plan) == ["numpy==2.1.0", "six==1.17.0", "thing @ https://example.com/thing-1.0.zip"]
    assert missing_requirements("Audited 2 packages in 1ms\nWould make no changes\n") == []
