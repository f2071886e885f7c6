"""The package as a whole: a light import, public names, entry points."""

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

import pyterrier_grasp as ptg


def test_import_brings_no_heavy_library():
    heavy = ("torch", "transformers", "pyterrier", "pandas", "numba", "scipy")
    code = f"import sys, pyterrier_grasp; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ptg.__all__)
def test_public_names_exist_and_are_documented(name):
    value = getattr(ptg, name)
    assert name == "__version__" or value.__doc__


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'GraspTrainr'"):
        ptg.GraspTrainr  # noqa: B018


def test_the_version_is_the_installed_one():
    assert version("pyterrier-grasp") == ptg.__version__


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("pyterrier.artifact", "multimodal_index.grasp"),
        ("pyterrier.artifact", "grasp_model.grasp"),
        ("pyterrier.artifact", "concept_space.grasp"),
        ("pyterrier.dataset_provider", "grasp"),
    ],
)
def test_entry_points_load(group, name):
    (entry,) = entry_points(group=group, name=name)
    assert callable(entry.load())
