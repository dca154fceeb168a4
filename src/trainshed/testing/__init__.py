"""Contract suites, fakes, processes, clusters and workloads for the tests."""
