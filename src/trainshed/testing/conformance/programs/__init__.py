"""Programs that suites run in environments of their own. Nothing here is imported."""
