"""Wide and deep, as an Estimator. Needs a TensorFlow that has them: up to 2.15."""

from __future__ import annotations

import tensorflow as tf

from trainer import trips
from trainer.trips import COMPANY_BUCKETS, DEFAULTS, INPUTS, LABEL, TYPES

_CROSS_BUCKETS = 10000
_COMPANY_SIZE = 10


def columns(args):
    """The feature columns of the wide part and those of the deep part."""
    column = tf.feature_column
    deep = [column.numeric_column(name, normalizer_fn=scale) for name, scale in trips.SCALES.items()]
    payment = column.categorical_column_with_vocabulary_list("payment_type", trips.PAYMENTS)
    company = column.categorical_column_with_hash_bucket("company", COMPANY_BUCKETS)
    miles = column.bucketized_column(column.numeric_column("trip_miles"), trips.MILES)
    seconds = column.bucketized_column(column.numeric_column("trip_seconds"), trips.SECONDS)
    cross = column.crossed_column([miles, seconds], _CROSS_BUCKETS)
    wide = [payment, company, miles, seconds, cross] if args.use_wide_columns else []
    if args.use_indicator_columns:
        deep += [column.indicator_column(payment), miles, seconds]
    if args.embed_categorical_columns:
        deep.append(column.embedding_column(company, _COMPANY_SIZE))
    return wide, deep


def create(args, config, hidden_units, epoch_steps):
    """The classifier: FTRL for the wide part, Adam with a falling rate for the deep one."""
    v1 = tf.compat.v1

    def adam():
        step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(args.learning_rate, step, epoch_steps, args.learning_rate_decay_factor)
        return v1.train.AdamOptimizer(rate)

    wide, deep = columns(args)
    return v1.estimator.DNNLinearCombinedClassifier(
        config=config,
        linear_feature_columns=wide,
        linear_optimizer=lambda: v1.train.FtrlOptimizer(args.learning_rate),
        dnn_feature_columns=deep,
        dnn_optimizer=adam,
        dnn_hidden_units=hidden_units,
        dnn_activation_fn=tf.nn.relu,
        dnn_dropout=args.dropout_prob,
    )


def serving_input(kind):
    """What a deployed version is sent: named values, lines of CSV without the label, or tf.Examples."""
    placeholder = tf.compat.v1.placeholder
    receive = tf.estimator.export.ServingInputReceiver

    def json():
        inputs = {name: placeholder(TYPES[name], [None], name) for name in INPUTS}
        return receive(dict(inputs), inputs)

    def csv():
        rows = placeholder(tf.string, [None], "csv_row")
        features = trips.parse(tf.strings.join([str(DEFAULTS[LABEL]), rows], ","))
        del features[LABEL]
        return receive(features, {"csv_row": rows})

    def example():
        texts = placeholder(tf.string, [None], "example_proto")
        spec = {name: tf.io.FixedLenFeature([], TYPES[name], DEFAULTS[name]) for name in INPUTS}
        return receive(tf.io.parse_example(texts, spec), {"example_proto": texts})

    return {"JSON": json, "CSV": csv, "EXAMPLE": example}[kind]
