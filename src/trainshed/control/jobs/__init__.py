"""The job controller, the engine registry, and the builders of attempts."""
