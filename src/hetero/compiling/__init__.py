"""Stage 4, compile: turns a plan into one compiled model. Also `CACHE_DIR`, import, and splitting into files."""
