"""Contract suites, fakes and real small things for the tests."""
