"""Contract suites that every implementation runs."""
