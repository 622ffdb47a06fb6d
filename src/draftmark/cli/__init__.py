"""The only place that prints and exits."""
