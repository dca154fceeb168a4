"""The control plane of tuning jobs: starts their trials, reads their metrics, and ends them."""
