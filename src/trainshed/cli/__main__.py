"""`python -m trainshed.cli` is `trainshed`."""

from trainshed.cli.commands import main

main(prog_name="trainshed")
