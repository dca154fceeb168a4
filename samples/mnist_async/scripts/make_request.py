#!/usr/bin/env python3
"""Write request.json: the first ten test images of MNIST, one instance a line, ready for `predict`."""

import argparse
import gzip
import json
import os

from create_records import PIXELS, find_source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="request.json", help="the file to write (%(default)s)")
    parser.add_argument("--count", type=int, default=10, help="how many images (%(default)s)")
    parser.add_argument("--source-dir", help="the folder with MNIST's four files, if not the one that ships")
    args = parser.parse_args()
    source = args.source_dir or find_source()
    with gzip.open(os.path.join(source, "t10k-images-idx3-ubyte.gz")) as file:
        pixels = file.read(16 + args.count * PIXELS)[16:]
    with open(args.output, "w") as file:
        for start in range(0, len(pixels), PIXELS):
            inputs = [round(pixel / 255, 6) for pixel in pixels[start : start + PIXELS]]
            file.write(json.dumps({"inputs": inputs}) + "\n")
    print("Wrote %d images to %s" % (len(pixels) // PIXELS, args.output))


if __name__ == "__main__":
    main()
