#!/usr/bin/env python3
"""Write request.json, one instance a line: the first test images of MNIST, or a digit drawn as text.

A drawing has a line of text for each row: a space or a dot is paper, any other character is ink. It is scaled to 20 by
20 pixels in the middle of 28 by 28, as the digits of MNIST are.
"""

import argparse
import gzip
import json
import os
import sys

SIDE, INNER = 28, 20
HEADER = 16  # bytes of an idx3 file before its pixels


def test_images(folder, count):
    """The first images, each as 784 numbers from 0 to 1."""
    with gzip.open(os.path.join(folder, "t10k-images-idx3-ubyte.gz")) as file:
        pixels = file.read(HEADER + count * SIDE * SIDE)[HEADER:]
    scaled = [round(pixel / 255, 4) for pixel in pixels]
    return [scaled[start : start + SIDE * SIDE] for start in range(0, len(scaled), SIDE * SIDE)]


def drawn_image(text):
    """A drawing as 784 numbers: each pixel is the share of ink below it, so that edges are grey."""
    rows = [line.rstrip() for line in text.splitlines()]
    ink = [(x, y) for y, row in enumerate(rows) for x, character in enumerate(row) if character not in " ."]
    if not ink:
        sys.exit("The drawing is empty: draw with any character but a space or a dot.")
    left, top = min(x for x, _ in ink), min(y for _, y in ink)
    width, height = max(x for x, _ in ink) - left + 1, max(y for _, y in ink) - top + 1
    scale = INNER / max(width, height)
    image = [0.0] * (SIDE * SIDE)
    for x, y in ink:
        across = overlaps((x - left - width / 2) * scale + SIDE / 2, scale)
        down = overlaps((y - top - height / 2) * scale + SIDE / 2, scale)
        for row, share_down in down:
            for column, share_across in across:
                image[row * SIDE + column] += share_down * share_across
    return [round(min(value, 1.0), 4) for value in image]


def overlaps(start, length):
    """The pixels that a stretch of one dimension touches, with the share of each that it covers."""
    end = start + length
    return [
        (pixel, min(pixel + 1, end) - max(pixel, start)) for pixel in range(SIDE) if start < pixel + 1 and end > pixel
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", default="request.json", help="the file to write (%(default)s)")
    parser.add_argument("--count", type=int, default=10, help="how many test images (%(default)s)")
    parser.add_argument("--source-dir", default="data", help="the folder with MNIST's files (%(default)s)")
    parser.add_argument("--drawing", help="a file with a digit drawn as text, - for standard input")
    args = parser.parse_args()
    if args.drawing == "-":
        images = [drawn_image(sys.stdin.read())]
    elif args.drawing:
        with open(args.drawing) as file:
            images = [drawn_image(file.read())]
    else:
        images = test_images(args.source_dir, args.count)
    with open(args.output, "w") as file:
        for image in images:
            file.write(json.dumps({"inputs": image}) + "\n")
    print("Wrote %d %s to %s" % (len(images), "image" if len(images) == 1 else "images", args.output))


if __name__ == "__main__":
    main()
