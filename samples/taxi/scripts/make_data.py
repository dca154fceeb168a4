"""Make the taxi data of this sample: `python scripts/make_data.py data.csv OUTDIR`.

`data.csv` is the file of Chicago taxi trips of the TFX project (see ORIGIN.md beside the data). The same file always
gives the same two: a trip goes to `taxi_eval.csv` if a hash of its row says so, else to `taxi_train.csv`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os

COLUMNS = (
    *("tip", "trip_miles", "trip_seconds", "fare", "trip_start_month", "trip_start_hour", "trip_start_day"),
    *("pickup_community_area", "dropoff_community_area", "pickup_census_tract", "dropoff_census_tract"),
    *("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude", "payment_type", "company"),
)
EVAL_PERCENT = 20


def is_tipped(row, share):
    """1 if the tip was more than this share of the fare, else 0. A share of 0 asks whether there was a tip at all."""
    return int(float(row["tips"]) > share * float(row["fare"]))


def is_for_eval(row):
    digest = hashlib.sha256("\t".join(row.values()).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < EVAL_PERCENT


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="the CSV file with all trips")
    parser.add_argument("outdir", help="where taxi_train.csv and taxi_eval.csv go")
    parser.add_argument("--share", type=float, default=0.0, help="a trip is tipped if the tip is above this part of it")
    args = parser.parse_args()
    with open(args.source, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name, wanted in (("taxi_train.csv", False), ("taxi_eval.csv", True)):
        chosen = [dict(row, tip=is_tipped(row, args.share)) for row in rows if is_for_eval(row) is wanted]
        with open(os.path.join(args.outdir, name), "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(chosen)
        print("%s: %d trips, %d tipped" % (name, len(chosen), sum(row["tip"] for row in chosen)))


if __name__ == "__main__":
    main()
