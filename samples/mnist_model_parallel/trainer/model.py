"""One network whose layers are on two machines: convolutions on the first device, dense layers on the second."""

import gzip
import os

import numpy as np
import tensorflow.compat.v1 as tf

DIGITS = 10
SIDE = 28


def read(folder, part):
    """The images (numbers from 0 to 1) and digits of `train` or `t10k`, from MNIST's own files."""
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        path = os.path.join(folder, "%s-%s-ubyte.gz" % (part, kind))
        with tf.io.gfile.GFile(path, "rb") as file:
            arrays.append(np.frombuffer(gzip.decompress(file.read()), np.uint8, offset=header))
    images, labels = arrays
    return images.reshape(-1, SIDE, SIDE, 1).astype("float32") / 255, labels.astype("int64")


def weights(shape):
    kernel = tf.get_variable("kernel", shape, initializer=tf.glorot_uniform_initializer())
    return kernel, tf.get_variable("bias", shape[-1:], initializer=tf.zeros_initializer())


def convolutions(images):
    values = images
    for name, inputs, outputs in (("conv1", 1, 16), ("conv2", 16, 32)):
        with tf.variable_scope(name):
            kernel, bias = weights([5, 5, inputs, outputs])
            values = tf.nn.conv2d(values, kernel, strides=1, padding="SAME")
            values = tf.nn.max_pool2d(values, ksize=2, strides=2, padding="SAME")
            values = tf.nn.relu(tf.nn.bias_add(values, bias))
    return tf.reshape(values, [-1, (SIDE // 4) ** 2 * 32])


def dense_layers(values):
    with tf.variable_scope("dense"):
        kernel, bias = weights([(SIDE // 4) ** 2 * 32, 256])
        values = tf.nn.relu(tf.nn.bias_add(values @ kernel, bias))
    with tf.variable_scope("logits"):
        kernel, bias = weights([256, DIGITS])
        return tf.nn.bias_add(values @ kernel, bias)


def network(images, labels, first, second):
    """The loss and the accuracy of a batch. Layers and their weights are on the devices `first` and `second`.

    Gradients are computed beside the layers they belong to (`colocate_gradients_with_ops`), so that only the values
    between the two halves, and their gradients on the way back, cross the network.
    """
    with tf.device(first):
        values = convolutions(images)
    with tf.device(second):
        logits = dense_layers(values)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        right = tf.equal(tf.argmax(logits, axis=1), labels)
        return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(right, tf.float32))
