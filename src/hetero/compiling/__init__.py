"""Stage 4: a plan and its devices become one compiled model; also `CACHE_DIR`, import, and splitting into files."""
