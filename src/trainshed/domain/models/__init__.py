"""Models and versions: what a version may ask for, how many hosts it has and when."""
