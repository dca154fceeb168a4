"""The convolutional network, the records it learns from, and the evaluation and export of a checkpoint.

Graphs and sessions of TensorFlow 1: they are how parameter servers that serve independent workers are written.
"""

import os
import time

import tensorflow.compat.v1 as tf

SIDE = 28
PIXELS = SIDE * SIDE
DIGITS = 10
DROPOUT = 0.4
SHUFFLED = 20_000  # records in the pool that batches are drawn from


def read_records(paths):
    """A dataset of (784 bytes, digit) from TFRecord files, gzipped if their names end with `.gz`."""

    def parse(records):
        wanted = {
            "image_raw": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        }
        found = tf.io.parse_example(records, wanted)
        return tf.reshape(tf.io.decode_raw(found["image_raw"], tf.uint8), [-1, PIXELS]), found["label"]

    packing = "GZIP" if paths[0].endswith(".gz") else ""
    # Many at a time, because parsing them one by one costs more than reading them.
    return tf.data.TFRecordDataset(paths, packing).batch(1000).map(parse).cache()


def scaled(images):
    return tf.cast(images, tf.float32) / 255


def training_batches(paths, batch_size, seed):
    """Images and digits for one step, without end. Each worker has its own seed, and so its own order."""
    data = read_records(paths).unbatch().repeat().shuffle(SHUFFLED, seed=seed).batch(batch_size).prefetch(2)
    images, labels = tf.data.make_one_shot_iterator(data).get_next()
    return scaled(images), labels


def logits_of(images, training):
    """Two convolutions and two dense layers, up to the ten numbers that softmax takes."""
    values = tf.reshape(images, [-1, SIDE, SIDE, 1])
    for name, inputs, outputs in (("conv1", 1, 32), ("conv2", 32, 64)):
        with tf.variable_scope(name):
            kernel, bias = weights([5, 5, inputs, outputs])
            values = tf.nn.conv2d(values, kernel, strides=1, padding="SAME")
            # Pooling last would give the same numbers for four times the additions.
            values = tf.nn.max_pool2d(values, ksize=2, strides=2, padding="SAME")
            values = tf.nn.relu(tf.nn.bias_add(values, bias))
    values = tf.reshape(values, [-1, (SIDE // 4) ** 2 * 64])
    with tf.variable_scope("dense"):
        kernel, bias = weights([(SIDE // 4) ** 2 * 64, 1024])
        values = tf.nn.relu(tf.nn.bias_add(values @ kernel, bias))
    if training:
        values = tf.nn.dropout(values, rate=DROPOUT)
    with tf.variable_scope("logits"):
        kernel, bias = weights([1024, DIGITS])
        return tf.nn.bias_add(values @ kernel, bias)


def weights(shape):
    kernel = tf.get_variable("kernel", shape, initializer=tf.glorot_uniform_initializer())
    return kernel, tf.get_variable("bias", shape[-1:], initializer=tf.zeros_initializer())


def loss_and_accuracy(logits, labels):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    right = tf.equal(tf.argmax(logits, axis=1), labels)
    return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(right, tf.float32))


def training_step(images, labels, learning_rate, train_steps):
    """One step of Adam: tensors of its loss, its accuracy, and the global step after it.

    The rate falls along a cosine to a hundredth, so that the last steps, which workers take from parameters that are
    already a little old, settle and do not scatter.
    """
    step = tf.train.get_or_create_global_step()
    loss, accuracy = loss_and_accuracy(logits_of(images, training=True), labels)
    rate = tf.train.cosine_decay(learning_rate, step, train_steps, alpha=0.01)
    with tf.control_dependencies([tf.train.AdamOptimizer(rate).minimize(loss)]):
        return loss, accuracy, tf.assign_add(step, 1)


class Evaluator:
    """Evaluates checkpoints on a test set, in a separate graph and session on this machine."""

    def __init__(self, paths, batch_size, batches, config):
        with tf.Graph().as_default() as graph:
            data = read_records(paths).unbatch().batch(batch_size).take(batches).prefetch(2)
            self._iterator = tf.data.make_initializable_iterator(data)
            images, labels = self._iterator.get_next()
            logits = logits_of(scaled(images), training=False)
            self._batch = tf.size(labels), *loss_and_accuracy(logits, labels)
            self._saver = tf.train.Saver()
        self._session = tf.Session(graph=graph, config=config)

    def measure(self, checkpoint):
        """The loss and the accuracy of a checkpoint over the whole test set."""
        self._saver.restore(self._session, checkpoint)
        self._session.run(self._iterator.initializer)
        total, loss, accuracy = 0, 0.0, 0.0
        while True:
            try:
                size, batch_loss, batch_accuracy = self._session.run(self._batch)
            except tf.errors.OutOfRangeError:
                return loss / total, accuracy / total
            total, loss, accuracy = total + size, loss + size * batch_loss, accuracy + size * batch_accuracy


def export(checkpoint, folder):
    """Write the network of a checkpoint as a SavedModel in a new folder named by the time, and return its path."""
    path = os.path.join(folder, str(int(time.time())))
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, PIXELS], name="inputs")
        logits = logits_of(inputs, training=False)
        tf.train.Saver().restore(session, checkpoint)
        signature = tf.saved_model.predict_signature_def(
            inputs={"inputs": inputs},
            outputs={"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)},
        )
        builder = tf.saved_model.Builder(path)
        signatures = {"serving_default": signature, "prediction": signature}
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return path
