"""The samples are listed, complete, and copied without writing over anything."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainshed.cli.commands import main
from trainshed.domain.tuning.hyperparameters import HYPERPARAMETERS, Tuning, check_hyperparameters
from trainshed.errors import AlreadyExistsError, NotFoundError
from trainshed.local import samples
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.sample_files import samples_folder

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"


def test_they_are_found_in_a_checkout() -> None:
    assert samples_folder() == SAMPLES


def test_they_are_part_of_the_package_that_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["samples"] == "trainshed/samples"


def test_every_sample_is_in_the_table() -> None:
    folders = {path.parent.name for path in SAMPLES.glob("*/setup.py")}
    assert folders == set(samples.catalogue(SAMPLES))


@pytest.mark.parametrize("name", list(samples.catalogue(SAMPLES)))
def test_a_sample_has_what_a_trainer_needs(name: str) -> None:
    sample = samples.catalogue(SAMPLES)[name]
    assert sample.runtime in CATALOGUE
    for file in ("README.md", "setup.py", "trainer/__init__.py", "trainer/model.py", "trainer/task.py"):
        assert (sample.folder / file).is_file(), file
    assert sample.next
    assert sample.data is None or (sample.data / "ORIGIN.md").is_file()


def test_a_copy_holds_the_shared_data_and_nothing_compiled(tmp_path: Path) -> None:
    (SAMPLES / "taxi" / "trainer" / "__pycache__").mkdir(exist_ok=True)
    samples.copy(samples.find(SAMPLES, "taxi"), tmp_path / "mine")
    assert (tmp_path / "mine" / "trainer" / "task.py").is_file()
    assert (tmp_path / "mine" / "data" / "taxi_train.csv").is_file()
    assert not list((tmp_path / "mine").rglob("__pycache__"))


def test_the_first_search_of_the_docs_is_that_of_the_sample() -> None:
    described = (ROOT / "docs" / "tuning.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(described) == yaml.safe_load((SAMPLES / "digits" / "hptuning_config.yaml").read_text())


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError, match="not empty"):
        samples.copy(samples.find(SAMPLES, "iris"), tmp_path)
    with pytest.raises(AlreadyExistsError, match="not a folder"):
        samples.copy(samples.find(SAMPLES, "iris"), tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_unknown_sample_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"'irs'.*iris, taxi"):
        samples.find(SAMPLES, "irs")


def test_the_commands_list_and_copy(tmp_path: Path) -> None:
    listed = CliRunner().invoke(main, ["samples", "list", "--format", "json"])
    assert {item["name"] for item in json.loads(listed.stdout)} == set(samples.catalogue(SAMPLES))
    copied = CliRunner().invoke(main, ["samples", "copy", "iris", str(tmp_path / "my iris")])
    assert copied.exit_code == 0, copied.output
    assert copied.stdout.splitlines()[0] == f"cd '{tmp_path}/my iris'"
    assert CliRunner().invoke(main, ["samples", "copy", "iris", str(tmp_path / "my iris")]).exit_code == 1


def test_the_label_of_the_taxi_data_is_there_in_both_kinds() -> None:
    for name, rows in (("taxi_train.csv", 12025), ("taxi_eval.csv", 2977)):
        lines = (SAMPLES / "data" / "taxi" / name).read_text().splitlines()
        assert len(lines) == rows + 1
        assert lines[0].startswith("tip,trip_miles,trip_seconds,fare,")
        assert {line[:2] for line in lines[1:]} == {"0,", "1,"}


def test_searches_of_samples_tune_arguments_that_their_trainers_have() -> None:
    found = sorted(SAMPLES.glob("*/hptuning_config.yaml")) + sorted(SAMPLES.glob("*/config/hptuning_config.yaml"))
    assert [path.relative_to(SAMPLES).parts[0] for path in found] == ["digits", "iris", "mnist_async"]
    for path in found:
        spec = yaml.safe_load(path.read_text())["trainingInput"]["hyperparameters"]
        tuning = Tuning.parse(check_hyperparameters(HYPERPARAMETERS(spec, "hyperparameters")))
        trainer = (SAMPLES / path.relative_to(SAMPLES).parts[0] / "trainer" / "task.py").read_text()
        assert f'"{tuning.tag}"' in trainer
        assert [each.name for each in tuning.space.parameters if f'"--{each.name}"' not in trainer] == []
