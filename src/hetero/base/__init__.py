"""The ground floor: device strings, properties, files, logs, warnings, and how numbers and names are written.

Modules here import only `hetero.errors` and each other.
"""
