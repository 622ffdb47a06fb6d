"""This machine and the ones that can be rented: the catalogue of GPUs, detection, measured bandwidth."""
