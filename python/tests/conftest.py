import importlib
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import kolmo

ROOT = Path(__file__).resolve().parents[2]


def usable():
    """Devices to test on: the CPU, and devices that KOLMO_REQUIRE_DEVICES names or kolmo finds."""
    found = [device["spec"] for device in kolmo.devices() if device["unusable"] is None and device["f64"]]
    wanted = os.environ.get("KOLMO_REQUIRE_DEVICES", "").split(",")
    missing = [name for name in wanted if name == "cpu" or ":" in name and name not in found]
    assert "cpu" in found and missing in ([], ["cpu"]), f"{missing} asked for; there are {found}"
    return found


def skip(what, why):
    """Skips a test, and records it in the file KOLMO_SKIPPED, if that is set."""
    if path := os.environ.get("KOLMO_SKIPPED"):
        test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
        with open(path, "a") as file:
            file.write(f"{what}\t{test}\t{why}\n")
    pytest.skip(f"for lack of {what}: {why}")


def skip_without_libraries(name, cells):
    """Skips a page if its cells import PyTorch or JAX, and it is not installed."""
    for library in ("torch", "jax"):
        if any(re.search(rf"^import {library}$", cell, re.MULTILINE) for cell in cells) and find_spec(library) is None:
            skip(library, f"{name} needs {library}, which is not installed")


def cuda_or_skip(name):
    """Imports a library with arrays on CUDA devices, or skips the test.

    With KOLMO_REQUIRE_DEVICES=cuda:0 a lack of CuPy or Torch fails.
    """
    found = [device for device in kolmo.devices() if device["spec"] == "cuda:0" and device["unusable"] is None]
    why = "no CUDA device" if not found else None
    library = None
    try:
        library = importlib.import_module(name) if found else None
    except ImportError:
        why = f"{name} is not installed"
    if name == "jax" and library is not None and all(device.platform != "gpu" for device in library.devices()):
        why = "JAX is built without CUDA"
    required = "cuda:0" in os.environ.get("KOLMO_REQUIRE_DEVICES", "").split(",") and name != "jax"
    assert why is None or not required, why
    return library if why is None else skip(f"cuda:0 with {name}", why)


@pytest.fixture(params=usable())
def device(request):
    return request.param


@pytest.fixture(scope="session")
def command():
    """The command `kolmo`, which has to give the same answers."""
    path = os.environ.get("KOLMO") or shutil.which("kolmo") or ROOT / "target/debug/kolmo"
    assert Path(path).exists(), f"{path} is missing: name the command in the variable KOLMO"
    return str(path)
