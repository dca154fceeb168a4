"""SavedModel, protobuf, TFRecord and TF Serving's warm-up file, read without TensorFlow."""
