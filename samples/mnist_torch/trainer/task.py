"""Train the network on MNIST with synchronous data parallelism: all replicas take each step together.

Each one computes the gradient of its share of the batch, and all of them apply the mean (DistributedDataParallel over
gloo). The program is the same on the master and on each worker; `RANK` and `WORLD_SIZE` say which one it is. Without
them, it trains alone.
"""

import argparse
import logging
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

from trainer.export import export
from trainer.files import Folder
from trainer.model import Classifier, Network, read


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="folder with MNIST's four files")
    parser.add_argument("--job-dir", required=True, help="where the model, summaries and checkpoints go")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=64, help="images in a step, over all replicas")
    parser.add_argument("--learning_rate", type=float, default=0.03, help="at the start; it falls along a cosine")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and of the order of the images")
    parser.add_argument("--steps_per_epoch", type=int, help="fewer than all the images, for a short try")
    parser.add_argument("--checkpoint_steps", type=int, default=100, help="steps between two checkpoints")
    return parser.parse_args()


class Training:
    """The network, its optimizer, and the step that both are at."""

    def __init__(self, args, steps):
        torch.manual_seed(args.seed)
        self.network = Network()
        self.step, self.steps = 0, steps
        self._optimizer = torch.optim.SGD(self.network.parameters(), lr=args.learning_rate, momentum=0.9)
        self._rate = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
        )
        self._parallel = DistributedDataParallel(self.network) if dist.is_initialized() else self.network
        self._loss = nn.CrossEntropyLoss()

    def take_step(self, images, digits):
        """Returns the loss of this replica's share and the share of digits that it got right."""
        self._optimizer.zero_grad()
        scores = self._parallel(images)
        loss = self._loss(scores, digits)
        loss.backward()
        self._optimizer.step()
        self._rate.step()
        self.step += 1
        return loss.item(), (scores.argmax(1) == digits).float().mean().item()

    def state(self):
        parts = (self.network, self._optimizer, self._rate)
        return {"step": self.step, "parts": [part.state_dict() for part in parts]}

    def restore(self, state):
        self.step = state["step"]
        for part, values in zip((self.network, self._optimizer, self._rate), state["parts"]):
            part.load_state_dict(values)


def share_of_step(step, *, count, batch_size, seed, rank, world):
    """The images that this replica takes in a step: its part of the next batch of the epoch's order.

    It follows from the step alone, so that a training which continues takes the images it would have taken.
    """
    epoch, batch = divmod(step, count // batch_size)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch))
    return order[batch * batch_size : (batch + 1) * batch_size][rank::world]


def train(args, training, data, folder, rank, world):
    images, digits = data
    writer = SummaryWriter(folder.summaries) if rank == 0 else None
    first = training.step + 1
    since, since_step = time.monotonic(), training.step
    while training.step < training.steps:
        chosen = share_of_step(
            training.step, count=len(images), batch_size=args.batch_size, seed=args.seed, rank=rank, world=world
        )
        loss, accuracy = training.take_step(images[chosen].float() / 255, digits[chosen])
        step, now = training.step, time.monotonic()
        if now - since >= 5 or step in (first, training.steps):
            pace = (step - since_step) / (now - since)
            line = "Train [%d/%d], step %d: loss: %.4f, accuracy: %.4f, %.1f steps/s"
            logging.info(line, rank, world, step, loss, accuracy, pace)
            if writer is not None:
                writer.add_scalar("loss", loss, step)
                writer.add_scalar("accuracy", accuracy, step)
                writer.add_scalar("global_step/sec", pace, step)
            since, since_step = now, step
        if rank == 0 and (step % args.checkpoint_steps == 0 or step == training.steps):
            folder.save_checkpoint(training.state())
            writer.flush()
            folder.upload_summaries()


def last_state(folder, rank, world):
    """The state in the last checkpoint, as the master sees it: all replicas must go on from the same step."""
    states = [folder.last_checkpoint() if rank == 0 else None]
    if world > 1:
        dist.broadcast_object_list(states, src=0)
    return states[0]


def evaluate(network, images, digits):
    network.eval()
    with torch.no_grad():
        right = sum(
            (network(some.float() / 255).argmax(1) == truth).sum().item()
            for some, truth in zip(images.split(500), digits.split(500))
        )
    return right / len(images)


def main():
    logging.basicConfig(level=logging.INFO)
    for name in ("onnx_ir", "onnxscript", "torch.onnx"):  # they tell of each pass
        logging.getLogger(name).setLevel(logging.ERROR)
    args = arguments()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    logging.info("Replica %d of %d in step with each other", rank, world)

    images, digits = read(args.data_dir, "train")
    if args.steps_per_epoch:
        count = args.steps_per_epoch * args.batch_size
        images, digits = images[:count], digits[:count]
    training = Training(args, args.epochs * (len(images) // args.batch_size))
    folder = Folder(args.job_dir)
    state = last_state(folder, rank, world)
    if state is not None:
        training.restore(state)
        logging.info("Going on from the checkpoint of step %d", training.step)
    train(args, training, (images, digits), folder, rank, world)

    if rank == 0:
        logging.info("Test accuracy: %.4f", evaluate(training.network, *read(args.data_dir, "t10k")))
        for path in export(Classifier(training.network).eval(), folder):
            logging.info("Exported the model to %s", path)
    if world > 1:
        dist.barrier()  # the job ends with the master, and a worker that leaves earlier would break its connections
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
