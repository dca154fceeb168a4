"""What trainers do with files through TensorFlow's file system, as source code, for tests of `gs://`."""

from __future__ import annotations

PARTS = ("files", "records", "checkpoints", "events", "models")

#: `everything(BASE)` runs all parts below a gs:// URI, and prints each
FILES = """
import tensorflow as tf
from tensorflow.io import gfile

def files(base):
    with gfile.GFile(f"{base}/one.txt", "w") as file:
        file.write("first\\n")
        file.write("second\\n")
    assert gfile.exists(f"{base}/one.txt") and not gfile.exists(f"{base}/absent.txt")
    assert gfile.GFile(f"{base}/one.txt").read() == "first\\nsecond\\n"
    assert [line.strip() for line in gfile.GFile(f"{base}/one.txt")] == ["first", "second"]
    with gfile.GFile(f"{base}/one.txt", "a") as file:
        file.write("third\\n")
    assert gfile.stat(f"{base}/one.txt").length == 19
    with gfile.GFile(f"{base}/empty", "w") as file:
        file.write("")
    assert gfile.GFile(f"{base}/empty").read() == ""
    gfile.makedirs(f"{base}/a/b")
    assert gfile.isdir(f"{base}/a/b") and gfile.isdir(base) and not gfile.isdir(f"{base}/one.txt")
    gfile.copy(f"{base}/one.txt", f"{base}/a/b/two.txt")
    gfile.copy(f"{base}/one.txt", f"{base}/a/b/two.txt", overwrite=True)
    gfile.rename(f"{base}/a/b/two.txt", f"{base}/a/with space + %.txt")
    assert gfile.GFile(f"{base}/a/with space + %.txt").read().endswith("third\\n")
    assert sorted(gfile.listdir(base)) == ["a/", "empty", "one.txt"], gfile.listdir(base)
    assert gfile.glob(f"{base}/a/*.txt") == [f"{base}/a/with space + %.txt"]
    gfile.rename(f"{base}/a", f"{base}/c")
    assert not gfile.exists(f"{base}/a/with space + %.txt") and gfile.exists(f"{base}/c/with space + %.txt")
    gfile.remove(f"{base}/empty")
    gfile.rmtree(f"{base}/c")
    assert gfile.listdir(base) == ["one.txt"], gfile.listdir(base)
    try:
        gfile.GFile(f"{base}/absent.txt").read()
    except tf.errors.NotFoundError:
        pass
    else:
        raise AssertionError("an absent object was read")

def records(base):
    with tf.io.TFRecordWriter(f"{base}/data.tfrecord") as writer:
        for number in range(1000):
            writer.write(b"%d" % number * 100)
    found = [int(record.numpy()[:3]) for record in tf.data.TFRecordDataset([f"{base}/data.tfrecord"]).take(3)]
    assert sum(1 for _ in tf.data.TFRecordDataset([f"{base}/data.tfrecord"])) == 1000
    assert found == [0, 111, 222], found

def checkpoints(base):
    value = tf.Variable(3.5)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), f"{base}/ckpt", max_to_keep=2)
    for step in range(4):
        value.assign_add(1.0)
        manager.save()
    value.assign(0.0)
    manager.checkpoint.restore(tf.train.latest_checkpoint(f"{base}/ckpt")).assert_consumed()
    assert value.numpy() == 7.5
    assert len(gfile.glob(f"{base}/ckpt/*.index")) == 2

def events(base):
    with tf.summary.create_file_writer(f"{base}/logs").as_default():
        for step in range(5):
            tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
    [path] = gfile.glob(f"{base}/logs/*tfevents*")
    read = [event.step for event in tf.compat.v1.train.summary_iterator(path) if event.summary.value]
    assert read == [0, 1, 2, 3, 4], read

def models(base):
    class Doubler(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x):
            return {"y": 2.0 * x}
    tf.saved_model.save(Doubler(), f"{base}/model")
    again = tf.saved_model.load(f"{base}/model")
    assert again(tf.constant([4.0]))["y"].numpy().tolist() == [8.0]

def everything(base):
    for part in (files, records, checkpoints, events, models):
        part(f"{base}/{part.__name__}")
        print("done:", part.__name__, flush=True)
"""
