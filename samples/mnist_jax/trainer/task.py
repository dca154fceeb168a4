"""Train a network on MNIST in JAX: the replicas are one mesh of devices, and each batch is spread over it.

The program is the same on the master and on each worker. `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and
`JAX_PROCESS_ID` say which one it is. Without them, it trains alone.
"""

import argparse
import logging
import os
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer.files import load_arrays, read_mnist, save_arrays
from trainer.model import first_weights, loss_of, scores_of


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="folder with MNIST's four files")
    parser.add_argument("--job-dir", required=True, help="where the model and the checkpoints go")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=128, help="images in a step, over all replicas")
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=128, help="of the hidden layer")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and of the order of the images")
    parser.add_argument("--checkpoint_steps", type=int, default=100, help="steps between two checkpoints")
    return parser.parse_args()


def join_gang():
    """Meet the other replicas. Returns the rank of this one and how many there are."""
    count, rank = int(os.environ.get("JAX_NUM_PROCESSES", 1)), int(os.environ.get("JAX_PROCESS_ID", 0))
    if count > 1:
        jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], count, rank)
    return rank, count


def step_function(rate, whole):
    """One step. The images are spread over all devices and the weights are on each: JAX adds the gradients up."""

    def step(weights, images, digits):
        loss, gradients = jax.value_and_grad(loss_of)(weights, images, digits)
        return jax.tree.map(lambda value, slope: value - rate * slope, weights, gradients), loss

    return jax.jit(step, out_shardings=(whole, whole))


def share_of_step(step, count, args, rank, world):
    """The images of this replica in a step. They follow from the step, so a training that continues takes the same."""
    epoch, batch = divmod(step, count // args.batch_size)
    order = np.random.RandomState(args.seed + epoch).permutation(count)
    return order[batch * args.batch_size : (batch + 1) * args.batch_size][rank::world]


def train(args, data, rank, world):
    """Returns the trained weights."""
    images, digits = data
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    whole, spread = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
    checkpoint = args.job_dir.rstrip("/") + "/checkpoint.npz"
    saved = load_arrays(checkpoint)
    done = int(saved.pop("step")) if saved else 0
    if saved:
        logging.info("Going on from the checkpoint of step %d", done)
    weights = {
        name: jax.make_array_from_process_local_data(whole, value)
        for name, value in (saved or first_weights(args.width, args.seed)).items()
    }
    take_step = step_function(args.learning_rate, whole)
    steps, since, since_step = args.epochs * (len(images) // args.batch_size), time.monotonic(), done
    for step in range(done + 1, steps + 1):
        chosen = share_of_step(step - 1, len(images), args, rank, world)
        share = (jax.make_array_from_process_local_data(spread, part[chosen]) for part in (images, digits))
        weights, loss = take_step(weights, *share)
        if step in (done + 1, steps) or time.monotonic() - since >= 5:
            pace = (step - since_step) / (time.monotonic() - since)
            logging.info("Train [%d/%d], step %d: loss: %.4f, %.1f steps/s", rank, world, step, float(loss), pace)
            since, since_step = time.monotonic(), step
        if rank == 0 and (step % args.checkpoint_steps == 0 or step == steps):
            save_arrays(checkpoint, {"step": step, **_local(weights)})
    return _local(weights)


def _local(weights):
    """The weights as NumPy arrays: each replica has all of them."""
    return {name: np.asarray(value.addressable_data(0)) for name, value in weights.items()}


def main():
    logging.basicConfig(level=logging.INFO)
    args = arguments()
    rank, world = join_gang()
    logging.info("Replica %d of %d, with %d devices in all", rank, world, jax.device_count())
    if args.batch_size % jax.device_count():
        raise SystemExit("--batch_size must be a multiple of the %d devices." % jax.device_count())
    weights = train(args, read_mnist(args.data_dir, "train"), rank, world)
    if rank == 0:
        images, digits = read_mnist(args.data_dir, "t10k")
        right = np.asarray(scores_of(weights, images)).argmax(1) == digits
        logging.info("Test accuracy: %.4f", right.mean())
        path = args.job_dir.rstrip("/") + "/export/model.npz"
        save_arrays(path, weights)
        logging.info("Exported the model to %s", path)
    if world > 1:
        jax.distributed.shutdown()  # it waits for all: the job ends with the master


if __name__ == "__main__":
    main()
