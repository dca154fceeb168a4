#!/usr/bin/env python3
"""Turn the MNIST files that ship with the samples into TFRecord files. Needs Python and nothing else.

Each record is a tf.train.Example with `image_raw` (784 bytes), `label`, `height`, `width` and `depth`.
"""

import argparse
import gzip
import os
import struct
import sys
import tempfile
import time

SIDE = 28
PIXELS = SIDE * SIDE
CHUNK = 5000  # records that are written at once
PARTS = (("train", "train"), ("test", "t10k"))  # our name, the name in MNIST's files


# TFRecord files: for each record its length, a checksum of the length, the bytes, a checksum of the bytes.


def checksum_table():
    """What each value of a byte does to a CRC-32C (Castagnoli) checksum."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


# The same table as four tables of one byte each, in the form that bytes.translate wants.
PLANES = [bytes((entry >> shift) & 0xFF for entry in checksum_table()) for shift in (0, 8, 16, 24)]


def checksums(joined, count):
    """CRC-32C of `count` pieces of one length that lie end to end in `joined`, as a list of numbers.

    A loop over 50 million bytes takes minutes in plain Python. All pieces go forward together here, byte by byte: the
    checksums are kept as four strings (all lowest bytes, and so on up), a table look-up for all of them is one
    `translate`, and an exclusive or of two strings is one on very long numbers.
    """

    def number(string):
        return int.from_bytes(string, "little")

    length = len(joined) // count
    ones = number(b"\xff" * count)
    crc = [ones] * 4
    for position in range(length):
        index = (crc[0] ^ number(joined[position::length])).to_bytes(count, "little")
        looked_up = [number(index.translate(plane)) for plane in PLANES]
        crc = [looked_up[0] ^ crc[1], looked_up[1] ^ crc[2], looked_up[2] ^ crc[3], looked_up[3]]
    planes = [(value ^ ones).to_bytes(count, "little") for value in crc]
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*planes)]


def masked(crc):
    """The form that is stored: a checksum of data that holds checksums would be weak."""
    return (((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def framed(records):
    """The bytes of a TFRecord file with these records, all of one length."""
    length = struct.pack("<Q", len(records[0]))
    head = length + struct.pack("<I", masked(checksums(length, 1)[0]))
    tails = checksums(b"".join(records), len(records))
    return b"".join(head + record + struct.pack("<I", masked(crc)) for record, crc in zip(records, tails))


# tf.train.Example, by hand: a protocol buffer field is its number and kind, its length and its bytes.


def field(number, content):
    size, length = len(content), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def feature(name, value):
    """An entry of the map from names to values. A number must be below 128."""
    kind, content = (3, bytes([value])) if isinstance(value, int) else (1, value)  # int64_list or bytes_list
    return field(1, field(1, name.encode()) + field(2, field(kind, field(1, content))))


SHAPE = b"".join(feature(name, value) for name, value in (("height", SIDE), ("width", SIDE), ("depth", 1)))


def example(image, label):
    return field(1, SHAPE + feature("label", label) + feature("image_raw", image))


# MNIST's own files.


def find_source():
    """The folder with MNIST: within a copy of this sample, or beside the samples."""
    sample = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [os.path.join(sample, "data"), os.path.join(os.path.dirname(sample), "data", "mnist")]
    for place in places:
        if os.path.exists(os.path.join(place, "train-images-idx3-ubyte.gz")):
            return place
    sys.exit("MNIST is in none of %s. Name its folder with --source-dir." % ", ".join(places))


def read_part(folder, name):
    """The images (784 bytes each) and labels of one part."""
    with gzip.open(os.path.join(folder, name + "-images-idx3-ubyte.gz")) as file:
        magic, count, rows, columns = struct.unpack(">IIII", file.read(16))
        pixels = file.read()
    with gzip.open(os.path.join(folder, name + "-labels-idx1-ubyte.gz")) as file:
        label_magic, label_count = struct.unpack(">II", file.read(8))
        labels = file.read()
    shape = (magic, label_magic, rows, columns)
    if shape != (0x803, 0x801, SIDE, SIDE) or not count == label_count == len(labels) == len(pixels) // PIXELS:
        sys.exit("The files of %s in %s are not whole MNIST files. Copy them again." % (name, folder))
    return [pixels[start : start + PIXELS] for start in range(0, len(pixels), PIXELS)], labels


def show_progress(name, done, total):
    if sys.stderr.isatty():
        bar = "#" * (30 * done // total)
        end = "\n" if done == total else ""
        sys.stderr.write("\r%-6s [%-30s] %d/%d%s" % (name, bar, done, total, end))
        sys.stderr.flush()


def write_part(path, images, labels, name):
    opened = gzip.open if path.endswith(".gz") else open
    partial = path + ".partial"
    with opened(partial, "wb") as file:
        for start in range(0, len(images), CHUNK):
            chunk = [example(*pair) for pair in zip(images[start : start + CHUNK], labels[start : start + CHUNK])]
            file.write(framed(chunk))
            show_progress(name, start + len(chunk), len(images))
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    output = os.path.join(tempfile.gettempdir(), "data")
    parser.add_argument("--output-dir", default=output, help="where the files go (%(default)s)")
    parser.add_argument("--source-dir", help="the folder with MNIST's four files, if not the one that ships")
    parser.add_argument("--gzip", action="store_true", help="write train.tfr.gz and eval.tfr.gz")
    parser.add_argument("--limit", type=int, help="maximum number of images of each part")
    args = parser.parse_args()
    source = args.source_dir or find_source()
    os.makedirs(args.output_dir, exist_ok=True)
    for name, stem in PARTS:
        began = time.time()
        images, labels = (values[: args.limit] for values in read_part(source, stem))
        file = {"train": "train.tfr.gz", "test": "eval.tfr.gz"}[name] if args.gzip else name + ".tfrecords"
        path = os.path.join(args.output_dir, file)
        write_part(path, images, labels, name)
        print("Wrote %d records to %s (%.1f s)" % (len(images), path, time.time() - began))


if __name__ == "__main__":
    main()
