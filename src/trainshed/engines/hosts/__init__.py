"""What the hosts of all engines share: contract, spec, processes, watcher."""
