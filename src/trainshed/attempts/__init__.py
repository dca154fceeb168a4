"""Reads the folder of an attempt without trusting it: journal, log, samples, event files, progress."""
