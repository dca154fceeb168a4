"""Routes of other model servers' protocols. Each has errors of its own form."""
