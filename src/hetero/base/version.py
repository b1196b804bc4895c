"""The version of the package. `pyproject.toml` takes it from here."""

__version__ = "0.1.0.dev0"
