"""The images of the local cluster: stand-ins, test images, and the product's own two images.

Written by a small archive writer of its own, standard library only; nothing is pulled.
"""
