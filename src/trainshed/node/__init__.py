"""Shipped; Python 3.7, standard library and psutil. What runs beside user code."""
