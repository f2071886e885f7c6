"""A folder appears whole or not at all."""

import os
from pathlib import Path

import pytest

from pyterrier_grasp.folders import whole_folder


def write(path, text):
    with whole_folder(path) as folder:
        (folder / "file").write_text(text)


def test_written_and_replaced(tmp_path):
    for text in ("old", "new"):
        write(tmp_path / "deep" / "folder", text)
    assert (tmp_path / "deep" / "folder" / "file").read_text() == "new"
    assert os.listdir(tmp_path / "deep") == ["folder"]


@pytest.mark.parametrize("exists", [True, False])
def test_an_error_changes_nothing(tmp_path, exists):
    if exists:
        write(tmp_path / "folder", "old")
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == (["folder"] if exists else [])


def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    write(tmp_path / "folder", "old")
    replace = os.replace

    def refuse(source, target):
        if Path(target).name == "folder" and ".old." not in Path(source).name:
            raise PermissionError(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        write(tmp_path / "folder", "new")
    assert (tmp_path / "folder" / "file").read_text() == "old"
