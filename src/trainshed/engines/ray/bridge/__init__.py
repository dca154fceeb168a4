"""Shipped. The process that talks to Ray, and the actor that it starts on nodes."""
