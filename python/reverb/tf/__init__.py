"""The implementation of the TensorFlow datasets and client."""
