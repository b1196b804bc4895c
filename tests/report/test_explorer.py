"""Overlays for Model Explorer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import hetero
from hetero.plugin.profile import Profile
from hetero.report.explorer import device_overlay, latency_overlay, write_overlays

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]


def test_overlays(core: hetero.Core, diamond: hetero.Model, profile_of: Run, tmp_path: Path) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    profile = profile_of(diamond, plan)
    device, latency = (json.loads(path.read_text()) for path in write_overlays(plan, profile, tmp_path))
    assert {key: entry["value"] for key, entry in device["results"].items()} == plan.affinity
    assert len({entry["bgColor"] for entry in device["results"].values()}) == 2
    assert {key: entry["value"] for key, entry in latency["results"].items()} == {
        row.node: round(row.real_us, 3) for row in profile
    }
    assert [entry["stop"] for entry in latency["gradient"]] == sorted({0, 0.25, 0.5, 0.75, 1})
    assert device_overlay(plan).isascii()
    assert json.loads(latency_overlay(()))["results"] == {}
