"""What the console shows: overview, alerts, machine metrics, TensorBoards."""
