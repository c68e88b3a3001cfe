"""The rows, one module an area; each module has a tuple CASES."""
