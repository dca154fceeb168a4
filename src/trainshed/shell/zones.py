"""The zones that gcloud's users know. All of them are this machine."""

from __future__ import annotations

_LETTERS = {
    "asia-east1": "abc",
    "asia-northeast1": "abc",
    "asia-south1": "abc",
    "asia-southeast1": "abc",
    "australia-southeast1": "abc",
    "europe-north1": "abc",
    "europe-west1": "bcd",
    "europe-west2": "abc",
    "europe-west3": "abc",
    "europe-west4": "abc",
    "northamerica-northeast1": "abc",
    "southamerica-east1": "abc",
    "us-central1": "abcf",
    "us-east1": "bcd",
    "us-east4": "abc",
    "us-west1": "abc",
    "us-west2": "abc",
}

REGIONS = tuple(_LETTERS)


def zones() -> list[dict[str, str]]:
    """Each zone with its region, in order."""
    return [
        {"name": f"{region}-{letter}", "region": region, "status": "UP"}
        for region, letters in _LETTERS.items()
        for letter in letters
    ]
