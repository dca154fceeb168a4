"""Models, versions, replays of logged requests."""
