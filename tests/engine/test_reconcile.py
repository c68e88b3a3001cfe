"""engine/reconcile.py with observe and apply, around a fake API server: one step at a time."""

import contextlib
import dataclasses
import json
import types

import pytest
from tests.decide import worlds
from tests.engine.parts import FILES, RUN, VERIFIER, Operator

from taskfold.api.settings import Settings
from taskfold.contract.dockerfile import ImageConfig
from taskfold.decide.world import PhaseDone
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.image_users import ImageUsers
from taskfold.engine.reconcile import Reconciler
from taskfold.protocol.phase import User

STATUS = "status taskruns/fix-bug"
POD = "fix-bug-1-1"


@pytest.fixture
def operator(tmp_path):
    return Operator(tmp_path)


async def steps(operator, count, key=RUN):
    """So many reconciles; the last one's answer."""
    again = None
    for _ in range(count):
        again = await Reconciler(operator.parts).reconcile(key)
        await operator.copies_end()
        operator.see()
    return again


def runs(operator):
    """The kubelet has started the sandbox."""
    found = operator.pod
    found["spec"]["nodeName"] = "node-1"
    found["status"] = {"phase": "Running", "containerStatuses": [worlds.runs(since=0)]}
    operator.client.put(api.PODS, found)
    operator.see()


def ends(operator, phase, *programs, **more):
    nonce = operator.nonce(phase)
    operator.phases.reports[nonce] = PhaseDone(worlds.result(nonce, *programs, **more))


async def admitted(operator, **spec):
    operator.create(**spec)
    await operator.parts.image_users.put((worlds.runs()["imageID"], "python:3.12-slim"), worlds.ROOT)
    await steps(operator, 1)


async def agent_ended(operator, **spec):
    """The agent's phase has its outcome; nobody has looked at it yet."""
    await admitted(operator, **spec)
    await steps(operator, 2)
    runs(operator)
    await steps(operator, 1)
    ends(operator, "seed")
    await steps(operator, 2)
    ends(operator, "agent", worlds.program("agent"))


async def graded(operator, content, name="reward.txt"):
    """The verdict stands in the VerifierRun, and the pod is gone: its files need an exec, which is not here."""
    await agent_ended(operator)
    await steps(operator, 1)
    await steps(operator, 1, VERIFIER)
    await steps(operator, 1)
    await steps(operator, 1, VERIFIER)
    ends(operator, "verify", worlds.program("test"), files={f"/logs/verifier/{name}": content})
    del operator.client.objects["pods", "team", POD]
    operator.watch.pods.clear()


async def row(operator):
    return json.loads(await operator.store.get(f"default/team/{worlds.UID}/1/row.json", limit=100_000))


# -- a whole life --------------------------------------------------------------------------------------------------


async def test_a_run_goes_from_its_manifest_to_its_reward_and_completes(operator):
    await admitted(operator)
    assert operator.status["phase"] == "Queued"
    await steps(operator, 1)
    assert operator.pod["metadata"]["ownerReferences"][0]["uid"] == worlds.UID
    await steps(operator, 1)
    assert operator.status["attempts"][0]["podUID"] == operator.pod["metadata"]["uid"]
    assert operator.phases.started == [], "nothing is sent before its nonce stands in the status"
    runs(operator)
    await steps(operator, 1)
    assert operator.phases.started == [operator.nonce("seed")]
    ends(operator, "seed")
    await steps(operator, 1)
    assert operator.status["phase"] == "Running"
    assert operator.phases.started == [operator.nonce("seed")], "the agent only after the status says Running"
    await steps(operator, 1)
    assert operator.phases.started[-1] == operator.nonce("agent")
    ends(operator, "agent", worlds.program("agent"))
    await steps(operator, 1)
    assert operator.client.calls.count(f"create verifierruns/{VERIFIER.name}") == 1
    assert operator.status["phase"] == "Running", "one write tells the agent's end and hands the pod over"
    await steps(operator, 1, VERIFIER)
    assert operator.nonce("verify") not in operator.phases.started
    await steps(operator, 1)
    assert (operator.status["phase"], operator.status["agent"]["outcome"]) == ("Verifying", "Succeeded")
    assert (
        operator.status["verifier"]["uid"] == operator.client.find(api.VERIFIERRUNS, VERIFIER.name)["metadata"]["uid"]
    )
    assert operator.client.calls.count(f"create verifierruns/{VERIFIER.name}") == 1
    await steps(operator, 1, VERIFIER)
    assert operator.phases.started[-1] == operator.nonce("verify")
    ends(operator, "verify", worlds.program("test"), files={"/logs/verifier/reward.txt": b"0.5"})
    await steps(operator, 1, VERIFIER)
    del operator.client.objects["pods", "team", POD]  # the files of a pod need an exec, which is not here
    operator.watch.pods.clear()
    await steps(operator, 1)
    assert (operator.status["phase"], operator.status["reward"]) == ("Succeeded", "0.5")
    assert not operator.status.get("complete")
    await steps(operator, 2)
    assert not operator.status.get("complete")
    found = await row(operator)
    assert (found["outcome"], found["reward"]) == ("verdict", 0.5)
    await steps(operator, 1)
    assert operator.status["complete"]
    assert operator.status["reward"] == "0.5"
    assert set(operator.phases.forgotten) >= set(operator.phases.started)
    calls = len(operator.client.calls)
    assert await steps(operator, 2) is None
    assert operator.client.calls[calls:].count(STATUS) == 0
    assert ("team", "fix-bug") in operator.watch.runs  # `see` put it back; the reconcile forgets it
    await Reconciler(operator.parts).reconcile(RUN)
    assert operator.watch.runs == {}


async def test_the_status_is_written_after_the_effects(operator):
    await admitted(operator)
    assert operator.client.calls[-1] == STATUS
    snapshots = [each.key async for each in operator.store.list("default/team/tasks/")]
    assert len(snapshots) == 2


async def test_a_status_that_says_the_same_is_not_written(operator):
    await admitted(operator)
    operator.change(suspend=True)
    await steps(operator, 1)
    calls = len(operator.client.calls)
    await steps(operator, 3)
    assert STATUS not in operator.client.calls[calls:]


async def test_what_was_written_is_told_at_once(operator):
    """Not by the watch, some milliseconds later."""
    await admitted(operator)
    assert operator.told == [RUN]
    await steps(operator, 1)
    assert operator.told[1:2] == [RUN], "the pod"
    await steps(operator, 2)
    operator.told.clear()
    await steps(operator, 3)
    assert operator.told == [], "nothing was written"


# -- handover ------------------------------------------------------------------------------------------------------


async def test_a_verifierrun_that_was_made_before_a_crash_is_found_again(operator):
    """Killed between the creation and the status; the watch has not told of it."""
    await agent_ended(operator)
    await steps(operator, 1)
    operator.watch.verifiers.clear()
    assert await Reconciler(operator.parts).reconcile(RUN) == 0
    await steps(operator, 1)
    assert operator.status["phase"] == "Verifying"
    assert [name for plural, _, name in operator.client.objects if plural == "verifierruns"] == [VERIFIER.name]


async def test_a_refused_verifierrun_is_told_and_the_agents_end_with_it(operator):
    await agent_ended(operator)
    operator.client.failures["create verifierruns"] = errors.Forbidden("exceeded quota: q", status=403)
    assert await steps(operator, 1) == 5.0
    assert (operator.status["phase"], operator.condition()[0]) == ("Running", "VerifierError")
    await steps(operator, 1)
    assert (operator.status["phase"], operator.status["agent"]["outcome"]) == ("Closing", "Succeeded")
    assert "uid" not in operator.status["verifier"]
    assert await steps(operator, 2) == 5.0
    assert operator.condition()[0] == "VerifierError"
    del operator.client.failures["create verifierruns"]
    await steps(operator, 2)
    assert operator.status["phase"] == "Verifying"


@pytest.mark.parametrize("status", [worlds.verdict(), worlds.verifying()], ids=["with a verdict", "going on"])
async def test_the_verifierrun_of_an_older_run_of_this_name_is_never_taken(operator, status):
    """Deleted and applied again: the garbage collector has not come yet. Its reward is another run's."""
    older = worlds.verifier(status, source={"runRef": {"name": "fix-bug", "uid": "older"}}).wire()
    older["metadata"]["ownerReferences"] = [{**older["metadata"]["ownerReferences"][0], "uid": "older"}]
    await agent_ended(operator)
    operator.client.put(api.VERIFIERRUNS, older)
    operator.see()
    assert await steps(operator, 1) == 5.0
    assert operator.condition()[0] == "NameConflict"
    for _ in range(4):
        await steps(operator, 1)
        assert (operator.status["phase"], operator.status.get("reward")) == ("Closing", None)
        assert "uid" not in operator.status["verifier"]
    del operator.client.objects["verifierruns", "team", VERIFIER.name]
    operator.watch.verifiers.clear()
    await steps(operator, 2)
    assert operator.status["phase"] == "Verifying"


async def test_the_verifierrun_of_an_older_run_is_not_cancelled_and_keeps_no_run_from_ending(operator):
    older = worlds.verifier(worlds.verifying(), source={"runRef": {"name": "fix-bug", "uid": "older"}}).wire()
    await agent_ended(operator)
    operator.client.put(api.VERIFIERRUNS, older)
    operator.change(cancel=True)
    del operator.client.objects["pods", "team", POD]
    operator.watch.pods.clear()
    await steps(operator, 4)
    assert (operator.status["phase"], operator.status["complete"]) == ("Cancelled", True)
    assert not operator.client.find(api.VERIFIERRUNS, VERIFIER.name)["spec"].get("cancel")


# -- the row -------------------------------------------------------------------------------------------------------


async def test_every_reward_is_in_the_row_though_the_status_holds_fewer(operator):
    rewards = {f"r{number:03}": 0.5 for number in range(200)}
    await graded(operator, json.dumps(rewards).encode(), "reward.json")
    await steps(operator, 1, VERIFIER)
    await steps(operator, 4)
    assert operator.status["complete"]
    assert len(operator.status["rewards"]) == 128
    found = await row(operator)
    assert (found["reward"], found["rewards"], found["reward_components"]) == (100.0, rewards, list(rewards))


async def test_more_rewards_and_a_reward_of_their_own_have_no_components(operator):
    rewards = {"reward": 0.25} | {f"r{number:03}": 0.5 for number in range(200)}
    await graded(operator, json.dumps(rewards).encode(), "reward.json")
    await steps(operator, 1, VERIFIER)
    await steps(operator, 4)
    found = await row(operator)
    assert (found["reward"], found["rewards"], found["reward_components"]) == (0.25, rewards, [])


async def test_a_verdict_whose_rewards_cannot_be_kept_waits_for_the_store(operator):
    await graded(operator, json.dumps({f"r{number}": 1 for number in range(200)}).encode(), "reward.json")
    put_new, failing = operator.store.put_new, True

    async def sometimes(key, data):
        if failing:
            raise errors.StoreError("disk full")
        return await put_new(key, data)

    operator.store.put_new = sometimes
    assert await steps(operator, 1, VERIFIER) == 5.0
    status = operator.client.find(api.VERIFIERRUNS, VERIFIER.name)["status"]
    assert "reward" not in status
    assert "StoreUnavailable" in {each["reason"] for each in status["conditions"]}
    failing = False
    await steps(operator, 1, VERIFIER)
    assert operator.client.find(api.VERIFIERRUNS, VERIFIER.name)["status"]["reward"] == "200"


async def test_files_that_were_not_kept_are_in_the_rows_and_the_runs_warnings(operator):
    await graded(operator, b"1")
    await steps(operator, 1, VERIFIER)
    await steps(operator, 4)
    text = "not all files could be kept: the sandbox was gone before its files could be kept; the outcome stands"
    assert (await row(operator))["warnings"] == [text]
    assert operator.status["warnings"] == [text]


# -- an image's own group ------------------------------------------------------------------------------------------


class Registry:
    """Knows one image's USER, or fails."""

    def __init__(self, found):
        self.found = found
        self.asked = []

    async def image_config(self, reference, **_):
        self.asked.append(reference)
        if isinstance(self.found, Exception):
            raise self.found
        return types.SimpleNamespace(config=ImageConfig({}, "", self.found))


IMAGE_ID = worlds.runs()["imageID"]
ALONE = User(uid=1000, gid=0, groups=())
GROUPS = {
    "by number": ("1000:50", ALONE, User(uid=1000, gid=50)),
    "by name": ("app:staff", ALONE, User(uid=1000, group="staff")),
    "none": ("1000", ALONE, ALONE),
    "no user": ("", ALONE, ALONE),
    "the registry is away": (errors.RegistryError("no route"), ALONE, ALONE),
    "root needs none": ("0:50", User(uid=0, gid=0, groups=()), User(uid=0, gid=0, groups=())),
    "the container has one": ("1000:50", User(uid=1000, gid=7, groups=(9,)), User(uid=1000, gid=7, groups=(9,))),
}


@pytest.mark.parametrize(("written", "recorded", "kept"), GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("scheme", ["", "docker-pullable://"], ids=["containerd", "docker"])
async def test_the_group_of_an_images_user_is_in_its_configuration(operator, written, recorded, kept, scheme):
    registry = Registry(written)
    operator.parts = dataclasses.replace(operator.parts, registry=registry)
    operator.create()
    await steps(operator, 3)
    found = operator.pod
    main = {**worlds.runs(since=0), "imageID": scheme + IMAGE_ID}
    record = json.dumps({"uid": recorded.uid, "gid": recorded.gid, "groups": list(recorded.groups)})
    found["status"] = {
        "phase": "Running",
        "initContainerStatuses": [worlds.stopped("Completed", 0, record, name="record")],
        "containerStatuses": [main],
    }
    operator.client.put(api.PODS, found)
    operator.see()
    assert await steps(operator, 1) == 0
    for name in (scheme + IMAGE_ID, "python:3.12-slim"):
        assert await ImageUsers(operator.store, "default").get(name) == kept
    assert registry.asked == ([IMAGE_ID] if recorded == ALONE else [])


# -- effects that fail ---------------------------------------------------------------------------------------------


async def test_a_wait_is_told_and_looked_at_again(operator):
    await admitted(operator)
    operator.client.failures["create pods"] = errors.Forbidden("exceeded quota: q", status=403)
    assert await steps(operator, 1) == 5.0
    assert operator.condition()[0] == "QuotaExceeded"
    assert operator.status["phase"] == "Queued"
    del operator.client.failures["create pods"]
    await steps(operator, 1)
    assert operator.pod


async def test_a_refusal_ends_the_run(operator):
    await admitted(operator)
    operator.client.failures["create pods"] = errors.Forbidden("violates PodSecurity", status=403)
    await steps(operator, 1)
    assert (operator.status["phase"], operator.status["failure"]["reason"]) == ("Failed", "PodRejected")
    assert operator.status["failure"]["terminal"]


async def test_any_other_error_is_told_and_left_to_the_queues_delay(operator):
    await admitted(operator)
    before = operator.status
    operator.client.failures["create pods"] = errors.Unavailable("no answer", sent=True)
    with pytest.raises(errors.Unavailable):
        await steps(operator, 1)
    assert operator.condition() == ("Internal", "tried again: no answer")
    assert {**operator.status, "conditions": 0} == {**before, "conditions": 0}


async def test_the_same_error_again_is_not_written_again(operator):
    await admitted(operator)
    operator.client.failures["create pods"] = errors.Unavailable("no answer", sent=True)
    for _ in range(2):
        with pytest.raises(errors.Unavailable):
            await steps(operator, 1)
    assert operator.client.calls.count(STATUS) == 2, "the admission and the first error"
    operator.client.failures["create pods"] = errors.Unavailable("another text", sent=True)
    with pytest.raises(errors.Unavailable):
        await steps(operator, 1)
    assert operator.client.calls.count(STATUS) == 2, "the reason is the same"
    operator.client.failures["create pods"] = errors.StoreError("disk full")
    with pytest.raises(errors.StoreError):
        await steps(operator, 1)
    assert operator.condition() == ("StoreUnavailable", "disk full")
    assert operator.client.calls.count(STATUS) == 3


async def test_the_same_error_of_a_verification_is_not_written_again(operator):
    operator.create()
    operator.client.put(api.VERIFIERRUNS, worlds.verifier().wire())
    operator.see()
    operator.client.failures["get taskruns"] = errors.Unavailable("no answer", sent=True)
    for _ in range(2):
        operator.watch.runs.clear()
        with pytest.raises(errors.Unavailable):
            await Reconciler(operator.parts).reconcile(VERIFIER)
    assert operator.client.calls.count(f"status verifierruns/{VERIFIER.name}") == 1


async def test_an_error_that_cannot_be_told_is_still_the_first_one(operator):
    await admitted(operator)
    operator.client.failures["create pods"] = errors.Unavailable("no answer", sent=True)
    operator.client.failures["status taskruns"] = errors.Unavailable("nor here", sent=True)
    with pytest.raises(errors.Unavailable, match="no answer"):
        await steps(operator, 1)


async def test_a_failed_effect_stops_the_ones_after_it(operator):
    operator.create()

    async def broken(key, data):
        raise errors.StoreError("disk full")

    operator.store.put_new = broken
    with pytest.raises(errors.StoreError):
        await steps(operator, 1)
    assert "admitted" not in operator.status, "a digest stands in the status only once its snapshot is kept"


async def test_a_pod_that_is_there_already_is_found_again(operator):
    """Killed between the creation and the status."""
    await admitted(operator)
    await steps(operator, 1)
    operator.watch.pods.clear()
    await Reconciler(operator.parts).reconcile(RUN)
    await steps(operator, 1)
    assert operator.status["attempts"][0]["podName"] == POD
    assert [name for plural, _, name in operator.client.objects if plural == "pods"] == [POD]


async def test_somebody_elses_pod_ends_the_run(operator):
    await admitted(operator)
    operator.client.put(api.PODS, {"metadata": {"name": POD, "uid": "theirs"}, "spec": {}})
    await steps(operator, 2)
    assert operator.status["failure"]["reason"] == "NameConflict"
    assert f"delete pods/{POD}" not in operator.client.calls


# -- conflicts and deletions ---------------------------------------------------------------------------------------


async def test_a_conflict_reads_again_and_comes_back_at_once(operator):
    operator.create()
    found = operator.client.find(api.TASKRUNS, "fix-bug")
    operator.client.put(api.TASKRUNS, found)  # a newer version that the watch has not told
    again = await Reconciler(operator.parts).reconcile(RUN)
    assert (again, operator.status) == (0, {})
    assert operator.client.calls[-2:] == [STATUS, "get taskruns/fix-bug"]
    await steps(operator, 1)
    assert operator.status["phase"] == "Queued"


@pytest.mark.parametrize("verb", ["status", "get"])
async def test_a_run_that_is_gone_is_let_go(operator, verb):
    operator.create()
    del operator.client.objects["taskruns", "team", "fix-bug"]
    if verb == "get":
        operator.watch.runs.clear()
    assert await Reconciler(operator.parts).reconcile(RUN) is None
    if verb == "get":
        assert operator.phases.dropped == [RUN]


async def test_a_run_that_is_being_deleted_is_left_alone(operator):
    operator.create()
    found = operator.client.find(api.TASKRUNS, "fix-bug")
    found["metadata"]["deletionTimestamp"] = worlds.ago(0)
    operator.client.put(api.TASKRUNS, found)
    operator.see()
    assert await steps(operator, 1) is None
    assert operator.status == {}
    assert operator.phases.dropped == [RUN]


async def test_a_verifierrun_that_is_gone_is_let_go(operator):
    assert await Reconciler(operator.parts).reconcile(VERIFIER) is None
    assert operator.phases.dropped == [VERIFIER]


# -- observing -----------------------------------------------------------------------------------------------------


async def test_a_pod_that_the_watch_does_not_know_is_asked_for_before_it_counts_as_lost(operator):
    await admitted(operator)
    await steps(operator, 2)
    runs(operator)
    operator.watch.pods.clear()
    await Reconciler(operator.parts).reconcile(RUN)
    assert f"get pods/{POD}" in operator.client.calls
    assert operator.phases.started == [operator.nonce("seed")]


async def test_an_ending_asks_for_a_pod_that_was_never_adopted(operator):
    """The operator died between creating the pod and writing it down; the run was cancelled before it came back."""
    await admitted(operator)
    await steps(operator, 1)
    operator.change(cancel=True)
    operator.watch.pods.clear()
    await Reconciler(operator.parts).reconcile(RUN)
    assert operator.status["phase"] == "Cancelled"
    for _ in range(5):
        operator.watch.pods.clear()
        await Reconciler(operator.parts).reconcile(RUN)
        await operator.copies_end()
    assert ("pods", "team", POD) not in operator.client.objects
    assert operator.status["complete"]


REFUSALS = {
    "broken": ({"files": {**FILES, "task.toml": "= nonsense"}}, "InvalidTask"),
    "no image": ({"files": {**FILES, "task.toml": ""}}, "InvalidTask"),
    "later feature": (
        {"files": {**FILES, "task.toml": "", "environment/Dockerfile": "FROM a\nCOPY b c\n"}},
        "UnsupportedField",
    ),
}


@pytest.mark.parametrize(("inline", "reason"), REFUSALS.values(), ids=REFUSALS)
async def test_a_folder_that_does_not_load_is_refused_at_admission(operator, inline, reason):
    operator.create(task={"inline": inline})
    await steps(operator, 1)
    failure = operator.status["failure"]
    assert (operator.status["phase"], failure["reason"], failure["stage"]) == ("Failed", reason, "admission")
    await steps(operator, 4)
    assert operator.status["complete"]
    assert (await row(operator))["outcome"] == "refused"


async def test_a_variable_that_is_missing_fails_the_run_before_any_pod(operator):
    toml = FILES["task.toml"] + 'verifier.env = { KEY = "${KEY}" }\n'
    operator.create(task={"inline": {"files": {**FILES, "task.toml": toml}}})
    await steps(operator, 1)
    assert operator.status["phase"] == "Failed"
    assert "KEY" in operator.status["failure"]["message"]
    assert not [call for call in operator.client.calls if call.startswith("create pods")]


async def test_a_changed_configmap_is_found_before_the_pod_is_made(operator):
    def put(word):
        data = {key.replace("/", "_"): text for key, text in FILES.items()} | {"instruction.md": word}
        operator.client.put(api.CONFIGMAPS, {"metadata": {"name": "files"}, "data": data})

    items = [{"key": path.replace("/", "_"), "path": path} for path in FILES]
    put("Do it.")
    await admitted(operator, task={"configMap": {"name": "files", "items": items}})
    assert operator.status["phase"] == "Queued"
    put("Do something else.")
    await steps(operator, 1)
    assert operator.status["failure"]["reason"] == "TaskChanged"
    assert ("pods", "team", POD) not in operator.client.objects


async def test_a_new_attempt_needs_the_source_no_more_and_keeps_its_files_in_a_place_of_its_own(operator):
    """The image on record stands with the first attempt; the ConfigMap is gone by now (C25)."""
    texts = {**FILES, "task.toml": "[environment]\n", "environment/Dockerfile": "FROM python:3.12-slim\nENV A=b\n"}
    data = {path.replace("/", "_"): text for path, text in texts.items()}
    items = [{"key": path.replace("/", "_"), "path": path} for path in texts]
    operator.client.put(api.CONFIGMAPS, {"metadata": {"name": "files"}, "data": data})

    async def image_config(reference, **_):
        return types.SimpleNamespace(config=ImageConfig(), digest="sha256:" + "1" * 64)

    at_once = Settings.model_validate({"limits": {"retrySeconds": 0}})
    known = types.SimpleNamespace(image_config=image_config)
    operator.parts = dataclasses.replace(operator.parts, registry=known, settings=at_once)
    source = {"configMap": {"name": "files", "items": items}}
    await admitted(operator, task=source, retries={"infrastructure": 1})
    await steps(operator, 2)
    runs(operator)
    await steps(operator, 1)
    ends(operator, "seed")
    await steps(operator, 1)
    assert operator.status["phase"] == "Running"
    for gone in (("pods", "team", POD), ("configmaps", "team", "files")):
        del operator.client.objects[gone]
    operator.watch.pods.clear()
    await steps(operator, 3)
    assert [(each["number"], each.get("podName")) for each in operator.status["attempts"]] == [
        (1, POD),
        (2, "fix-bug-2-1"),
    ]
    assert operator.status["store"] == "default/team/uid-run/2/"
    container = operator.client.find(api.PODS, "fix-bug-2-1")["spec"]["containers"][0]
    assert container["image"] == "python@sha256:" + "1" * 64
    assert {"name": "A", "value": "b"} in container["env"]


async def test_an_admitted_run_reads_its_snapshot_only(operator, tmp_path):
    """Another process, after the files were trimmed out of the watch's picture."""
    await admitted(operator)
    other = Operator(tmp_path)
    other.client = operator.client
    other.parts = type(operator.parts)(**{**vars(other.parts), "client": operator.client})
    other.see()
    await Reconciler(other.parts).reconcile(RUN)
    assert operator.pod["spec"]["containers"][0]["image"] == "python:3.12-slim"


@pytest.mark.parametrize(
    "spec", [{"verifier": {"timeoutSeconds": 500_000}}, {"multipliers": {"timeout": 100}}], ids=["own", "scaled"]
)
async def test_the_pods_deadline_has_room_for_all_limits(operator, spec):
    toml = FILES["task.toml"] + "agent.timeout_sec = 10\nverifier.timeout_sec = 5000\n"
    await admitted(operator, task={"inline": {"files": {**FILES, "task.toml": toml}}}, **spec)
    await steps(operator, 1)
    outage = operator.settings.limits.outage_seconds
    assert operator.pod["spec"]["activeDeadlineSeconds"] >= 500_000 + outage


# -- start slots ---------------------------------------------------------------------------------------------------


@pytest.fixture
def crowded(tmp_path):
    """One slot, and another run's pod on its way."""
    found = Operator(tmp_path, concurrency={"podStarts": 1})
    labels = {"taskfold.dev/run": "other"}
    found.client.put(
        api.PODS, {"metadata": {"name": "other", "labels": labels}, "spec": {"nodeName": "n"}, "status": {}}
    )
    return found


async def test_without_a_start_slot_the_run_waits_and_is_woken(crowded):
    await admitted(crowded)
    assert await steps(crowded, 1) == 2.0
    assert crowded.condition()[0] == "QueuedForStart"
    del crowded.client.objects["pods", "team", "other"]
    crowded.watch.pods.clear()
    crowded.starts.offer()
    assert crowded.woken == [RUN]
    await steps(crowded, 1)
    assert crowded.pod


@pytest.mark.parametrize("change", [{"cancel": True}, {"suspend": True}], ids=["cancelled", "suspended"])
async def test_a_queued_run_that_wants_no_pod_any_more_gives_up_its_place(crowded, change):
    await admitted(crowded)
    await steps(crowded, 1)
    crowded.change(**change)
    await steps(crowded, 1)
    del crowded.client.objects["pods", "team", "other"]
    crowded.watch.pods.clear()
    crowded.starts.offer()
    await steps(crowded, 4)
    crowded.watch.pods.clear()
    another = type(RUN)(RUN.kind, "team", "another")
    assert crowded.starts.take(another)


@pytest.mark.parametrize(
    "change",
    [{"cancel": True}, {"suspend": True}, {"agent": {"nop": {}}}],
    ids=["cancelled", "suspended", "changed spec"],
)
async def test_a_slot_that_is_held_is_given_back_with_a_plan_that_creates_no_pod(crowded, change):
    await admitted(crowded)
    await steps(crowded, 1)
    del crowded.client.objects["pods", "team", "other"]
    crowded.watch.pods.clear()
    another = type(RUN)(RUN.kind, "team", "another")
    assert not crowded.starts.take(another)
    assert crowded.woken == [RUN], "the slot is held for the first"
    crowded.change(**change)
    await steps(crowded, 1)
    assert crowded.woken == [RUN, another]
    assert crowded.starts.take(another)


@pytest.mark.parametrize(
    "failure",
    [errors.Forbidden("exceeded quota: q", status=403), errors.Unavailable("no answer", sent=True)],
    ids=["waits", "fails"],
)
async def test_a_slot_is_given_back_when_the_pod_is_not_created(tmp_path, failure):
    operator = Operator(tmp_path, concurrency={"podStarts": 1})
    await admitted(operator)
    operator.client.failures["create pods"] = failure
    with contextlib.suppress(errors.Unavailable):
        await steps(operator, 1)
    assert operator.starts.take(type(RUN)(RUN.kind, "team", "another"))


async def test_a_slot_is_counted_once_when_the_pod_is_there(tmp_path):
    """By the watch, no longer as held: another run starts as soon as this pod runs."""
    operator = Operator(tmp_path, concurrency={"podStarts": 1})
    await admitted(operator)
    await steps(operator, 1)
    another = type(RUN)(RUN.kind, "team", "another")
    assert not operator.starts.take(another)
    runs(operator)
    operator.starts.offer()
    assert operator.woken == [another]
