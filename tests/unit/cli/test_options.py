"""What commands share: questions before something is deleted, and hints in the words of the program."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from trainshed.cli.toolkit.options import confirm, job_command, quiet_option
from trainshed.errors import CannotProceedError

QUESTION = "This will delete version [v1]...\n\nDo you want to continue (Y/n)?  "
REFUSAL = "Nobody was asked."


@click.command()
@quiet_option
@click.option("--careful", is_flag=True)
def delete(quiet: bool, careful: bool) -> None:
    confirm("This will delete version [v1]...", quiet=quiet, unattended=REFUSAL if careful else "")
    click.echo("deleted")


def run(stdin: str, *options: str) -> Result:
    return CliRunner().invoke(delete, options, input=stdin)


@pytest.mark.parametrize("stdin", ["y\n", "YES\n", "\n", "maybe\ny\n"])
def test_yes_and_an_empty_line_go_on(stdin: str) -> None:
    done = run(stdin)
    assert (done.exit_code, done.stdout) == (0, "deleted\n")
    assert done.stderr.startswith(QUESTION)


@pytest.mark.parametrize("stdin", ["n\n", "No\n", "n", "what\nn\n"])
def test_no_on_a_pipe_deletes_nothing(stdin: str) -> None:
    done = run(stdin)
    assert done.stdout == ""
    assert isinstance(done.exception, CannotProceedError)
    assert str(done.exception) == "Aborted by user."


def test_another_answer_is_asked_for_again() -> None:
    assert run("what\ny\n").stderr == f"{QUESTION}Please enter 'y' or 'n':  "


def test_the_end_of_the_input_means_yes_as_in_gcloud() -> None:
    assert run("").stdout == "deleted\n"
    refused = run("", "--careful")
    assert (refused.stdout, str(refused.exception)) == ("", REFUSAL)
    assert run("y\n", "--careful").stdout == "deleted\n"


def test_quiet_asks_nothing() -> None:
    done = run("n\n", "-q")
    assert (done.stdout, done.stderr) == ("deleted\n", "")


@pytest.mark.parametrize(
    ("program", "words", "hint"),
    [
        ("trainshed", ["jobs", "submit"], "trainshed jobs describe one"),
        ("gcloud", ["ml-engine", "jobs", "submit"], "gcloud ml-engine jobs describe one"),
        ("trainshed", ["demo"], "trainshed jobs describe one"),
    ],
)
def test_hints_have_the_words_of_the_program(program: str, words: list[str], hint: str) -> None:
    command: click.Command = click.Command(words[-1], callback=lambda: click.echo(job_command("describe", "one")))
    for name in reversed(["root", *words[:-1]]):
        command = click.Group(name, [command])
    assert CliRunner().invoke(command, words, prog_name=program).stdout == f"{hint}\n"
