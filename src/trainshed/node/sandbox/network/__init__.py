"""The network of a sandbox: a namespace of its own, and a forwarder outside that holds every connection out of it."""
