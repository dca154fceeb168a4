"""`python bench/ray.py` is `bench/ray_engine.py`, which has a name of its own because `ray` is Ray's."""

from ray_engine import main

if __name__ == "__main__":
    main()
