"""The control plane: controllers that reconcile desired and observed state."""
