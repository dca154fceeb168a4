from setuptools import find_packages, setup

setup(name="mnist-jax-trainer", version="1.0", packages=find_packages(), install_requires=[])
