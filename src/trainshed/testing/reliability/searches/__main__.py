"""Kills processes of searches at random moments."""

from trainshed.testing.reliability.searches.kills import main

main()
