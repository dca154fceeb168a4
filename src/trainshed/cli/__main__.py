"""`python -m trainshed.cli` is `trainshed`."""

from trainshed.cli.root import main

main(prog_name="trainshed")
