"""The command line of the trainer."""

from __future__ import annotations

import argparse
import sys


def _boolean(text):
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise argparse.ArgumentTypeError("%r is neither true nor false" % text)


def _layers(text):
    return [int(size) for size in text.split(",")]


def arguments(argv=None):
    parser = argparse.ArgumentParser(description="Learn whether a taxi trip is tipped.")
    data = parser.add_argument_group("data")
    data.add_argument("--train-files", required=True, help="CSV files to learn from: names or patterns, with commas")
    data.add_argument("--eval-files", required=True, help="CSV files to measure with")
    data.add_argument("--train-size", type=int, default=0, help="rows to learn from; 0: they are counted")
    length = parser.add_argument_group("length")
    length.add_argument("--num-epochs", type=int, default=100, help="times that all rows are seen")
    length.add_argument("--batch-size", type=int, default=128)
    length.add_argument("--train-steps", type=int, default=0, help="0: as many as the epochs need")
    length.add_argument("--eval-steps", type=int, help="batches of an evaluation; default: all rows")
    length.add_argument("--eval-frequency-secs", type=int, default=15, help="seconds between two evaluations")
    model = parser.add_argument_group("model")
    model.add_argument("--model", choices=("estimator", "keras"), help="default: an Estimator if TensorFlow has them")
    model.add_argument("--embed-categorical-columns", type=_boolean, default=True, help="companies into the deep part")
    model.add_argument("--use-indicator-columns", type=_boolean, default=True, help="payment into the deep part")
    model.add_argument("--use-wide-columns", type=_boolean, default=True, help="companies, payment, crosses: wide part")
    model.add_argument("--learning-rate", type=float, default=0.1)
    model.add_argument("--learning-rate-decay-factor", type=float, default=1.0, help="the rate falls by it each epoch")
    model.add_argument("--hidden-units", type=_layers, default="30,30,30", help="sizes of the hidden layers")
    model.add_argument(
        "--layer-sizes-scale-factor", type=float, default=0.7, help="above 0: each layer is so much of the one before"
    )
    model.add_argument("--num-layers", type=int, default=4, help="layers, if they are scaled")
    model.add_argument("--dropout-prob", type=float)
    output = parser.add_argument_group("output")
    output.add_argument("--job-dir", required=True, help="where checkpoints, summaries and the model go")
    output.add_argument(
        "--reuse-job-dir", action="store_true", help="continue an earlier run; else its files are removed"
    )
    output.add_argument("--serving-export-format", choices=("JSON", "CSV", "EXAMPLE"), default="JSON")
    output.add_argument(
        "--eval-export-format", choices=("CSV", "EXAMPLE"), help="known for old command lines; there is no such export"
    )
    args = parser.parse_args(argv)
    if args.eval_export_format:
        sys.stderr.write("WARNING: --eval-export-format is ignored: the graph for evaluation is not exported.\n")
    return args


def layers(args):
    """The sizes of the hidden layers: as listed, or the first one scaled down."""
    if args.layer_sizes_scale_factor <= 0:
        return args.hidden_units
    first = args.hidden_units[0]
    return [max(2, int(first * args.layer_sizes_scale_factor**n)) for n in range(args.num_layers)]


def steps(args, rows):
    """How many steps a training takes, and how many one epoch."""
    epoch = max(1, (args.train_size or rows) // args.batch_size)
    return args.train_steps or epoch * args.num_epochs, epoch
