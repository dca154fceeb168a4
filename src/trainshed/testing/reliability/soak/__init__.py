"""Hours under load with a fault every ten seconds, on one server that is never restarted."""
