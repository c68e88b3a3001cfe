"""engine/snapshots.py and engine/image_users.py, on a real store in a folder."""

import json

import pytest

from taskfold.contract import digest, loader
from taskfold.contract.folder import MemoryFolder, TarFolder
from taskfold.effects import store as stores
from taskfold.engine import image_users, snapshots
from taskfold.engine.image_users import ImageUsers
from taskfold.engine.snapshots import Snapshots
from taskfold.protocol.phase import User

FILES = {
    "task.toml": (b'environment.docker_image = "python:3.12-slim"\n', False),
    "instruction.md": (b"Do it.\n", False),
    "tests/test.sh": (b"#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n", True),
    "README.md": (b"not of the contract", False),
}
FOLDER = MemoryFolder(FILES)
TASK = loader.load(FOLDER, task_id="t")
DIGEST = digest.task_digest(FOLDER)


@pytest.fixture
def store(tmp_path):
    return stores.Store(f"file://{tmp_path}/store")


@pytest.fixture
async def kept(store):
    """A process that has admitted the task."""
    found = Snapshots(store, "default")
    found.remember(DIGEST, FOLDER, TASK)
    await found.keep("team", DIGEST)
    return found


async def test_what_was_just_loaded_needs_no_store(store):
    found = Snapshots(store, "default")
    found.remember(DIGEST, FOLDER, TASK)
    assert await found.task("team", DIGEST, "t") is TASK
    async with found.open("team", DIGEST) as folder:
        assert folder is FOLDER


async def test_another_process_finds_the_same_bytes(store, kept):
    fresh = Snapshots(store, "default")
    assert await fresh.task("team", DIGEST, "t") == TASK
    async with fresh.open("team", DIGEST) as folder:
        assert isinstance(folder, TarFolder)
        assert digest.task_digest(folder) == DIGEST
        assert [each.path for each in folder.entries()] == ["instruction.md", "task.toml", "tests/test.sh"]
        assert folder.read("tests/test.sh") == FILES["tests/test.sh"][0]


async def test_a_task_is_parsed_once_for_its_id(store, kept):
    fresh = Snapshots(store, "default")
    assert await fresh.task("team", DIGEST, "t") is await fresh.task("team", DIGEST, "t")
    assert (await fresh.task("team", DIGEST, "other")).id == "other"


async def test_keeping_again_changes_nothing(store, kept):
    before = {each.key async for each in store.list("default/team/")}
    await kept.keep("team", DIGEST)
    again = Snapshots(store, "default")
    await again.keep("team", DIGEST)  # it is there: the folder need not be remembered
    assert {each.key async for each in store.list("default/team/")} == before
    assert len(before) == 2


async def test_namespaces_do_not_share_snapshots(store, kept):
    with pytest.raises(stores.NotStored):
        await Snapshots(store, "default").task("other", DIGEST, "t")


async def test_a_tar_without_its_manifest_is_written_again(store):
    """A crash between the two writes."""
    key = stores.snapshot_key("default", "team", DIGEST)
    await store.put_stream(key, _once(b"half of something"))
    found = Snapshots(store, "default")
    found.remember(DIGEST, FOLDER, TASK)
    await found.keep("team", DIGEST)
    assert await Snapshots(store, "default").task("team", DIGEST, "t") == TASK


async def test_a_folder_of_another_digest_is_never_stored(store):
    found = Snapshots(store, "default")
    wrong = "sha256:" + "0" * 64
    found.remember(wrong, FOLDER, TASK)
    with pytest.raises(RuntimeError, match="digest"):
        await found.keep("team", wrong)
    assert [each async for each in store.list("default/team/")] == []


async def test_a_snapshot_that_was_altered_is_not_used(store, kept, tmp_path):
    key = stores.snapshot_key("default", "team", DIGEST)
    await store.put_stream(key, _once(b"planted" * 1000))
    with pytest.raises(stores.errors.EffectError):
        await Snapshots(store, "default").task("team", DIGEST, "t")


async def test_folders_in_memory_are_bounded(store):
    found = Snapshots(store, "default")
    for number in range(snapshots.HELD_FOLDERS + 5):
        found.remember(f"sha256:{number:064x}", FOLDER, TASK)
    assert len(found._folders) == snapshots.HELD_FOLDERS
    assert f"sha256:{0:064x}" not in found._folders


async def _once(content):
    yield content


# -- who images start as -------------------------------------------------------------------------------------------

RECORD = '{"uid": 1000, "gid": 50, "groups": [44, 45]}'
USER = User(uid=1000, gid=50, groups=(44, 45))


async def test_a_record_is_found_under_id_and_reference_also_by_another_process(store):
    found = ImageUsers(store, "default")
    assert await found.get("python:3") is None
    await found.put(("sha256:abc", "python:3"), USER)
    for users in (found, ImageUsers(store, "default")):
        assert await users.get("python:3") == USER
        assert await users.get("sha256:abc") == USER
        assert await users.get("sha256:def") is None


async def test_a_moved_tag_leads_to_the_newer_record(store):
    found = ImageUsers(store, "default")
    await found.put(("sha256:abc", "python:3"), USER)
    await found.put(("sha256:def", "python:3"), User(uid=0, gid=0, groups=()))
    for users in (found, ImageUsers(store, "default")):
        assert await users.get("python:3") == User(uid=0, gid=0, groups=())
        assert await users.get("sha256:abc") == USER


@pytest.mark.parametrize(
    "user",
    [USER, User(uid=0, gid=0, groups=()), User(uid=5, gid=50), User(uid=5, group="staff"), User(uid=5, gid=0)],
    ids=["groups", "no groups", "gid alone", "group by name", "the group's groups"],
)
async def test_a_user_reads_back_as_the_same_in_another_process(store, user):
    await ImageUsers(store, "default").put(("sha256:abc",), user)
    assert await ImageUsers(store, "default").get("sha256:abc") == user


async def test_an_image_without_an_id_is_kept_under_its_reference_only(store):
    found = ImageUsers(store, "default")
    await found.put(("", "python:3"), USER)
    assert await found.get("python:3") == USER
    assert len([each async for each in store.list("default/images/")]) == 1


async def test_records_in_memory_are_bounded(store, monkeypatch):
    monkeypatch.setattr(image_users, "HELD", 3)
    found = ImageUsers(store, "default")
    for number in range(5):
        await found.put((f"image:{number}",), USER)
    assert len(found._held) == 3
    assert await found.get("image:0") == USER


BROKEN = ["", "no", "[]", "{}", '{"uid": "x", "gid": 0, "groups": []}', json.dumps({"uid": 0}), "null"]


@pytest.mark.parametrize("record", BROKEN)
def test_a_broken_record_is_no_user(record):
    with pytest.raises(ValueError, match=r"not a record|invalid literal"):
        image_users.parse(record)


@pytest.mark.parametrize(
    ("record", "user"),
    [(RECORD, USER), ('{"uid": 0, "gid": 0, "groups": null}', User(uid=0, gid=0, groups=()))],
    ids=["groups", "none"],
)
def test_a_record_tells_the_user(record, user):
    assert image_users.parse(record) == user
