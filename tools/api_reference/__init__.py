"""The API reference, docs/api, made from the docstrings and signatures of the public names."""
