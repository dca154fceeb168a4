"""The taxi trips: what the columns are, and how files of them become batches."""

from __future__ import annotations

import tensorflow as tf

LABEL = "tip"
#: every column of a file, in order, with what an empty cell means
DEFAULTS = {
    LABEL: 0,
    "trip_miles": 0.0,
    "trip_seconds": 0.0,
    "fare": 0.0,
    "trip_start_month": 1,
    "trip_start_hour": 1,
    "trip_start_day": 1,
    "pickup_community_area": "",
    "dropoff_community_area": "",
    "pickup_census_tract": "",
    "dropoff_census_tract": "",
    "pickup_latitude": 0.0,
    "pickup_longitude": 0.0,
    "dropoff_latitude": 0.0,
    "dropoff_longitude": 0.0,
    "payment_type": "",
    "company": "",
}
INPUTS = tuple(name for name in DEFAULTS if name != LABEL)

PAYMENTS = ("Cash", "Credit Card", "Dispute", "No Charge", "Pcard", "Prcard", "Prepaid", "Unknown")
COMPANY_BUCKETS = 100
MILES = tuple(float(miles) for miles in range(5, 55, 5))
SECONDS = (900.0, 1800.0, 2700.0, 3600.0)


def _logarithm(mean):
    """Long trips are rare: the logarithm spreads them evenly around 0."""
    return lambda values: tf.math.log1p(tf.maximum(values, 0.0)) - mean


#: the numbers that the deep part looks at, and how they are scaled
SCALES = {"trip_miles": _logarithm(1.0), "trip_seconds": _logarithm(6.0), "fare": _logarithm(2.5)}

_TYPES = {float: tf.float32, int: tf.int64, str: tf.string}
TYPES = {name: _TYPES[type(default)] for name, default in DEFAULTS.items()}


def parse(lines):
    """A batch of lines as one tensor a column."""
    defaults = [tf.constant([default], dtype=TYPES[name]) for name, default in DEFAULTS.items()]
    return dict(zip(DEFAULTS, tf.io.decode_csv(lines, defaults)))


def _split(columns):
    return columns, columns.pop(LABEL)


def files_of(patterns):
    """The files that a list of names and patterns, separated by commas, stands for."""
    found = [path for pattern in patterns.split(",") for path in sorted(tf.io.gfile.glob(pattern))]
    if not found:
        raise SystemExit("There is no file %s. Copy the data into the bucket first." % patterns)
    return found


def count(patterns):
    """How many trips there are in these files."""
    rows = 0
    for path in files_of(patterns):
        with tf.io.gfile.GFile(path) as file:
            rows += sum(1 for line in file if line.strip()) - 1
    return rows


def batches(patterns, batch_size, seed=None):
    """Batches of (columns, label). With a seed: shuffled by it, without end. Without: once, in order."""
    lines = tf.data.Dataset.from_tensor_slices(files_of(patterns)).flat_map(
        lambda path: tf.data.TextLineDataset(path).skip(1)
    )
    if seed is not None:
        lines = lines.cache().shuffle(20000, seed=seed).repeat()
    return lines.batch(batch_size).map(parse).map(_split).prefetch(2)
