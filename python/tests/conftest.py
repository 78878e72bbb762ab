import os
import shutil
from pathlib import Path

import pytest

import kolmo

ROOT = Path(__file__).resolve().parents[2]


def usable():
    """Devices to test on: the CPU, and what KOLMO_REQUIRE_DEVICES names or kolmo finds."""
    found = [device["spec"] for device in kolmo.devices() if device["unusable"] is None and device["f64"]]
    wanted = os.environ.get("KOLMO_REQUIRE_DEVICES", "").split(",")
    missing = [name for name in wanted if name == "cpu" or ":" in name and name not in found]
    assert "cpu" in found and missing in ([], ["cpu"]), f"{missing} asked for; there are {found}"
    return found


@pytest.fixture(params=usable())
def device(request):
    return request.param


@pytest.fixture(scope="session")
def command():
    """The command `kolmo`, whose answers are to be the same."""
    path = os.environ.get("KOLMO") or shutil.which("kolmo") or ROOT / "target/debug/kolmo"
    assert Path(path).exists(), f"{path} is missing: name the command in the variable KOLMO"
    return str(path)
