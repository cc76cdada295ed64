"""Training loops for a small MNIST model, and the clocks that tell where their time goes.

Importing this package loads no framework.
"""
