"""One model behind one socket: process, server, listener, batcher, warm-up, parity."""
