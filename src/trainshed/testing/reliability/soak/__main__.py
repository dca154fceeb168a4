"""Runs a server for hours under load, with a fault every ten seconds."""

from trainshed.testing.reliability.soak.batches import main

main()
