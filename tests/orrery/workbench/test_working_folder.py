"""Files of the working folder: checked before they have their name, never of another content, never elsewhere."""

import threading

import pytest

from groundwork.errors import ConfigError
from orrery.workbench.working_folder import WorkingFolder


@pytest.fixture
def folder(tmp_path):
    return WorkingFolder(tmp_path / "bench")


def files(folder, kind="models"):
    return {path.name: path.read_bytes() for path in (folder.path / kind).iterdir()}


def refuse(path):
    raise ConfigError(f"refused {path.name}")


def test_an_upload_has_its_name_once_it_is_checked(folder):
    seen = []

    def check(path):
        seen.append((path.name, path.read_bytes(), (folder.path / "models" / "mine.yaml").exists()))
        return "good"

    assert folder.add("models", "mine", ".yaml", b"one", check) == "good"
    assert seen == [("mine.yaml", b"one", False)]
    assert files(folder) == {"mine.yaml": b"one"}


def test_a_failing_check_leaves_what_was_there(folder):
    for add in (b"one", b"two"):
        with pytest.raises(ConfigError, match=r"refused mine\.yaml"):
            folder.add("models", "mine", ".yaml", add, refuse)
        assert files(folder) == {}
    folder.add("models", "mine", ".yaml", b"one", lambda path: None)
    with pytest.raises(ConfigError, match=r"refused mine\.yaml"):
        folder.add("models", "mine", ".yaml", b"one", refuse)
    with pytest.raises(ConfigError, match="names another file already"):
        folder.add("models", "mine", ".yaml", b"two", lambda path: None)
    assert files(folder) == {"mine.yaml": b"one"}


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without"])
def test_of_uploads_at_once_the_first_has_the_name(folder, monkeypatch, links):
    """All are checked at the same time; those with another content than the first are refused."""
    if not links:
        monkeypatch.setattr("os.link", refuse_link)
    meet, ended = threading.Barrier(6), []

    def upload(content):
        try:
            ended.append((content, folder.add("models", "mine", ".yaml", content, lambda path: meet.wait(20))))
        except ConfigError as error:
            ended.append((content, str(error)))

    threads = [threading.Thread(target=upload, args=(bytes([65 + i // 2]),)) for i in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (content,) = files(folder).values()
    if links:
        assert sorted(isinstance(said, int) for each, said in ended if each == content) == [True, True]
        assert all("names another file already" in said for each, said in ended if each != content)
    assert len(ended) == 6


def refuse_link(source, target):
    """What a file system without hard links does."""
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("what", ["file", "folder", "loop", "dangling"])
def test_links_are_no_files_of_the_folder(folder, tmp_path, what):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.yaml").write_text("secret")
    models = folder.path / "models"
    if what == "folder":
        models.rmdir()
        models.symlink_to(outside)
        with pytest.raises(ConfigError, match="no link"):
            folder.names("models", ".yaml")
    else:
        to = {"file": outside / "mine.yaml", "loop": models / "mine.yaml", "dangling": outside / "none"}[what]
        (models / "mine.yaml").symlink_to(to)
        assert folder.names("models", ".yaml") == []
    for use in (
        lambda: folder.file("models", "mine", ".yaml"),
        lambda: folder.write("models", "mine", ".yaml", b"x"),
        lambda: folder.add("models", "mine", ".yaml", b"x", lambda path: None),
        lambda: folder.remove("models", "mine", ".yaml"),
    ):
        with pytest.raises(ConfigError, match="regular file of the working folder, and no link"):
            use()
    assert [each.read_text() for each in outside.iterdir()] == ["secret"]
