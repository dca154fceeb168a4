"""Wide and deep, as a Keras model, for any TensorFlow 2."""

from __future__ import annotations

import tensorflow as tf

from trainer import trips

_SIZES = {  #: what each category may be: a number below this
    "payment": len(trips.PAYMENTS) + 1,  # 0 is for all others
    "company": trips.COMPANY_BUCKETS,
    "miles": len(trips.MILES) + 1,
    "seconds": len(trips.SECONDS) + 1,
    "cross": (len(trips.MILES) + 1) * (len(trips.SECONDS) + 1),
}
_COMPANY_SIZE = 10


def features(columns):
    """What the model looks at, as numbers. Done while data is read, so that the model itself holds no tables."""
    known = tf.equal(columns["payment_type"][:, tf.newaxis], tf.constant(trips.PAYMENTS))
    miles = tf.searchsorted(tf.constant(trips.MILES), columns["trip_miles"], side="right")
    seconds = tf.searchsorted(tf.constant(trips.SECONDS), columns["trip_seconds"], side="right")
    return {
        "numbers": tf.stack([scale(columns[name]) for name, scale in trips.SCALES.items()], axis=1),
        "payment": tf.reduce_max(tf.cast(known, tf.int32) * tf.range(1, len(trips.PAYMENTS) + 1), axis=1),
        "company": tf.cast(tf.strings.to_hash_bucket_fast(columns["company"], trips.COMPANY_BUCKETS), tf.int32),
        "miles": miles,
        "seconds": seconds,
        "cross": miles * _SIZES["seconds"] + seconds,
    }


def create(args, hidden_units):
    """A model from `features` to one logit: the sum of a linear model of the categories and a deep network."""
    layers = tf.keras.layers
    numbers = tf.keras.Input([len(trips.SCALES)], name="numbers")
    categories = {name: tf.keras.Input([], dtype=tf.int32, name=name) for name in _SIZES}
    deep = [numbers]
    if args.use_indicator_columns:
        for name in ("payment", "miles", "seconds"):
            size = _SIZES[name]
            identity = layers.Embedding(size, size, embeddings_initializer="identity", trainable=False)
            deep.append(identity(categories[name]))
    if args.embed_categorical_columns:
        deep.append(layers.Embedding(_SIZES["company"], _COMPANY_SIZE)(categories["company"]))
    values = layers.Concatenate()(deep) if len(deep) > 1 else numbers
    for size in hidden_units:
        values = layers.Dense(size, activation="relu")(values)
        if args.dropout_prob:
            values = layers.Dropout(args.dropout_prob)(values)
    logits = [layers.Dense(1)(values)]
    if args.use_wide_columns:
        logits += [layers.Embedding(_SIZES[name], 1)(given) for name, given in categories.items()]
    output = layers.Add()(logits) if len(logits) > 1 else logits[0]
    return tf.keras.Model({"numbers": numbers, **categories}, output)


def serving(model, kind):
    """What a deployed version does: named values, lines of CSV without the label, or tf.Examples, to answers."""

    def answer(columns):
        logits = model(features(columns))
        probabilities = tf.sigmoid(tf.concat([-logits, logits], axis=1))
        best = tf.cast(logits > 0, tf.int64)
        return {
            "logits": logits,
            "logistic": tf.sigmoid(logits),
            "probabilities": probabilities,
            "class_ids": best,
            "classes": tf.strings.as_string(best),
        }

    def json(**columns):
        return answer(columns)

    def csv(csv_row):
        return answer(trips.parse(tf.strings.join([str(trips.DEFAULTS[trips.LABEL]), csv_row], ",")))

    def example(example_proto):
        spec = {name: tf.io.FixedLenFeature([], trips.TYPES[name], trips.DEFAULTS[name]) for name in trips.INPUTS}
        return answer(tf.io.parse_example(example_proto, spec))

    if kind == "JSON":
        return tf.function(json).get_concrete_function(
            **{name: tf.TensorSpec([None], trips.TYPES[name], name) for name in trips.INPUTS}
        )
    function, name = {"CSV": (csv, "csv_row"), "EXAMPLE": (example, "example_proto")}[kind]
    return tf.function(function).get_concrete_function(tf.TensorSpec([None], tf.string, name))
