"""Helpers of all other packages: device strings, properties, files, logs, warnings, and formatting of numbers and
names.

Modules here import only `hetero.errors` and each other.
"""
