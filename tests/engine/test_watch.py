"""engine/watch.py: the picture of the cluster, and who should look when it changes."""

import pytest

from taskfold.engine.watch import MAX_DEPARTED, Collection, Key, Kind, Watch

RUN, VERIFIER = Key(Kind.TASK_RUN, "team", "a"), Key(Kind.VERIFIER_RUN, "team", "a-1-verify")


def obj(name="a", version="5", *, uid="u1", namespace="team", status=None, spec=None, **metadata):
    found = {"metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version, **metadata}}
    found["spec"] = {"task": {"inline": {"files": {"task.toml": "x"}}}, "agent": {"nop": {}}} if spec is None else spec
    return found | ({"status": status} if status is not None else {})


def verifier(name="a-1-verify", version="5", **more):
    spec = {"source": {"runRef": {"name": "a", "uid": "u1"}}, "mode": "shared"}
    return obj(name, version, spec=spec, **more)


def pod(name="a-1-1", version="5", *, node=None, phase="Pending", scheduled=None, **more):
    """`scheduled`: the scheduler's word, if it has spoken."""
    spec = {"nodeName": node} if node else {}
    conditions = [] if scheduled is None else [{"type": "PodScheduled", "status": scheduled}]
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "False"}, *conditions]}
    return obj(name, version, spec=spec, labels={"taskfold.dev/run": "a"}, status=status, **more)


def version(held, name, namespace="team"):
    return held[namespace, name].version


@pytest.mark.parametrize("kind", ["run", "verifier", "pod"])
@pytest.mark.parametrize(("first", "second", "stays"), [(5, 6, 6), (6, 5, 6), (5, 5, 5), (9, 10, 10)], ids=str)
def test_an_older_version_never_replaces_a_newer_one(kind, first, second, stays):
    watch = Watch()
    make, see, held = {
        "run": (obj, watch.see_run, watch.runs),
        "verifier": (verifier, watch.see_verifier, watch.verifiers),
        "pod": (pod, watch.see_pod, watch.pods),
    }[kind]
    see(make("a", str(first)))
    see(make("a", str(second)))
    assert version(held, "a") == stays


def test_an_object_made_anew_replaces_the_old_one():
    watch = Watch()
    watch.see_run(obj(version="5"))
    watch.see_run(obj(version="7", uid="u2"))
    assert watch.runs["team", "a"].object["metadata"]["uid"] == "u2"


def test_a_late_event_of_the_object_before_does_not_replace_the_new_one():
    watch = Watch()
    watch.see_run(obj(version="7", uid="u2"))
    watch.see_run(obj(version="5", uid="u1"))
    assert watch.runs["team", "a"].object["metadata"]["uid"] == "u2"


def test_what_is_gone_is_gone_and_its_key_looks():
    watch = Watch()
    watch.see_run(obj())
    assert watch.see_run(obj(version="6"), gone=True) == {RUN}
    assert watch.runs == {}


KINDS = {
    "run": (obj, Watch.see_run, "runs", RUN),
    "verifier": (verifier, Watch.see_verifier, "verifiers", Key(Kind.VERIFIER_RUN, "team", "a")),
    "pod": (pod, Watch.see_pod, "pods", RUN),
}


@pytest.mark.parametrize(("make", "see", "held", "key"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
@pytest.mark.parametrize("version", ["4", "5"], ids=["older", "the same"])
def test_what_is_no_news_wakes_nobody_and_changes_nothing(make, see, held, key, gone, version):
    """Our own write came first; and a complete run leaves the watch's selection with the version that we gave it."""
    watch = Watch()
    assert key in see(watch, make("a", "5"))
    before = dict(getattr(watch, held))
    assert see(watch, make("a", version), gone=gone) == set()
    assert getattr(watch, held) == before
    assert key in see(watch, make("a", "6"), gone=gone)
    assert (("team", "a") in getattr(watch, held)) is not gone


@pytest.mark.parametrize(("make", "see", "held", "key"), KINDS.values(), ids=KINDS)
def test_the_end_of_what_was_never_seen_is_news(make, see, held, key):
    watch = Watch()
    assert key in see(watch, make("a", "5"), gone=True)
    assert getattr(watch, held) == {}


# -- who looks -----------------------------------------------------------------------------------------------------


def test_a_pod_wakes_its_run_and_the_verification_under_way():
    watch = Watch()
    assert watch.see_pod(pod()) == {RUN}
    watch.see_run(obj(status={"verifier": {"name": "a-1-verify"}}))
    assert watch.see_pod(pod(version="6")) == {RUN, VERIFIER}


def test_the_last_state_of_a_pod_that_is_gone_is_kept_for_a_while():
    watch = Watch()
    for number in range(MAX_DEPARTED + 1):
        watch.see_pod(pod(f"p{number}", str(2 * number + 1)))
        watch.see_pod(pod(f"p{number}", str(2 * number + 2)), gone=True)
    assert len(watch.departed) == MAX_DEPARTED
    assert ("team", "p0") not in watch.departed
    assert watch.departed["team", "p1"].version == 4
    assert not watch.pods


def test_a_pod_without_our_label_wakes_nobody():
    assert Watch().see_pod(obj("x", spec={})) == set()


def test_a_verifierrun_wakes_itself_and_its_run():
    assert Watch().see_verifier(verifier()) == {RUN, VERIFIER}


@pytest.mark.parametrize(("complete", "keys"), [(False, {RUN, VERIFIER}), (True, {RUN})])
def test_a_run_wakes_its_verification_until_it_is_complete(complete, keys):
    assert Watch().see_run(obj(status={"verifier": {"name": "a-1-verify"}, "complete": complete})) == keys


# -- comparisons with a list -----------------------------------------------------------------------------------------


def test_what_a_list_does_not_hold_is_dropped_and_wakes():
    watch = Watch()
    for name, number in (("a", "5"), ("b", "5"), ("new", "50")):
        watch.see_run(obj(name, number))
    watch.see_run(obj("far", "5", namespace="other"))
    found = watch.compare(Collection.TASK_RUNS, {("team", "a"): 5}, since=20, namespace="team")
    assert set(watch.runs) == {("team", "a"), ("team", "new"), ("other", "far")}
    assert (found.gone, found.keys, found.outdated) == (1, {Key(Kind.TASK_RUN, "team", "b")}, [])


@pytest.mark.parametrize(
    ("listed", "outdated"),
    [({"a": 5}, []), ({"a": 4}, []), ({"a": 6}, ["a"]), ({"a": 5, "b": 3}, ["b"])],
    ids=["the same", "older than an event", "newer", "not held"],
)
@pytest.mark.parametrize(("make", "see", "held", "key"), KINDS.values(), ids=KINDS)
def test_what_a_list_knows_better_is_named(make, see, held, key, listed, outdated):
    watch = Watch()
    see(watch, make("a", "5"))
    what = {"runs": Collection.TASK_RUNS, "verifiers": Collection.VERIFIER_RUNS, "pods": Collection.PODS}[held]
    found = watch.compare(what, {("team", name): number for name, number in listed.items()}, since=20, namespace="team")
    assert (found.keys, [name for _, name in found.outdated]) == (set(), outdated)
    assert version(getattr(watch, held), "a") == 5, "nothing is changed by names and versions"


def test_a_pod_that_a_list_does_not_hold_wakes_its_run_though_nobody_holds_that():
    watch = Watch()
    watch.see_pod(pod(version="5"))
    assert watch.compare(Collection.PODS, {}, since=20, namespace="team").keys == {RUN}
    assert watch.pods == {}


def test_a_list_of_all_namespaces_covers_all():
    watch = Watch()
    watch.see_run(obj("a", "5"))
    watch.see_run(obj("far", "5", namespace="other"))
    found = watch.compare(Collection.TASK_RUNS, {}, since=20, namespace=None)
    assert (found.gone, watch.runs) == (2, {})
    assert found.keys == {RUN, Key(Kind.TASK_RUN, "other", "far")}


def test_what_was_told_after_the_list_was_made_stays():
    watch = Watch()
    watch.see_run(obj("a", "30"))
    found = watch.compare(Collection.TASK_RUNS, {}, since=20, namespace=None)
    assert (found.gone, set(watch.runs)) == (0, {("team", "a")})


def policy(name="a", version="1", namespace="team"):
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": version}, "spec": {"podSelector": {}}}


def restricted(name, **labels):
    labels = {"taskfold.dev/network": "no-network", **labels}
    found = pod(name)
    found["metadata"]["labels"] = {**found["metadata"]["labels"], **labels}
    return found


def test_a_policy_wakes_whoever_has_a_restricted_sandbox_beside_it():
    watch = Watch()
    watch.see_pod(pod("public"))
    assert watch.see_policy(policy()) == set()
    watch.see_pod(restricted("closed"))
    assert RUN in watch.see_policy(policy(version="2"))
    assert watch.see_policy(policy(version="2")) == set(), "no news"
    assert watch.see_policy(policy(version="3", namespace="other")) == set()
    assert RUN in watch.see_policy(policy(version="4"), gone=True)


@pytest.mark.parametrize("what", Collection)
def test_an_object_is_seen_in_its_collection(what):
    watch, make = Watch(), {"taskruns": obj, "verifierruns": verifier, "pods": pod, "networkpolicies": policy}[what]
    watch.see(what, make("a", "5"))
    held = {"taskruns": watch.runs, "verifierruns": watch.verifiers, "pods": watch.pods}
    held["networkpolicies"] = watch.policies
    assert [name for name, each in held.items() if each] == [what]
    watch.see(what, make("a", "6"), gone=True)
    assert not any(held.values())


def test_unfinished_is_everything_that_is_held_in_an_order_that_stays():
    watch = Watch()
    for name in "ba":
        watch.see_run(obj(name))
    watch.see_verifier(verifier())
    assert watch.unfinished() == [RUN, Key(Kind.TASK_RUN, "team", "b"), VERIFIER]


def test_an_object_that_cannot_be_read_is_held_like_others():
    watch = Watch()
    watch.see_run(obj("odd", spec={"task": {}}))
    assert watch.unfinished() == [Key(Kind.TASK_RUN, "team", "odd")]


# -- trimming ------------------------------------------------------------------------------------------------------


def test_files_are_held_until_the_run_is_admitted_and_the_digest_stays():
    watch = Watch()
    watch.see_run(obj(version="5"))
    whole = watch.runs["team", "a"]
    assert whole.object["spec"]["task"]["inline"]["files"]
    watch.see_run(obj(version="6", status={"admitted": {"taskDigest": "sha256:x"}}))
    trimmed = watch.runs["team", "a"]
    assert trimmed.object["spec"]["task"]["inline"] == {}
    assert trimmed.object["spec"]["agent"] == {"nop": {}}
    assert trimmed.spec_digest == whole.spec_digest


def test_what_nobody_reads_is_not_held():
    watch = Watch()
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}
    original = obj(managedFields=[{"manager": "kubectl"}], annotations=annotations)
    watch.see_run(original)
    metadata = watch.runs["team", "a"].object["metadata"]
    assert "managedFields" not in metadata
    assert metadata["annotations"] == {"mine": "1"}
    assert "managedFields" in original["metadata"], "the object that was handed in is not changed"


def test_a_complete_run_is_forgotten_with_its_verification():
    watch = Watch()
    done = obj(status={"verifier": {"name": "a-1-verify"}, "complete": True})
    watch.see_run(done)
    watch.see_verifier(verifier())
    watch.see_run(obj("b"))
    watch.forget(done)
    assert (set(watch.runs), watch.verifiers) == ({("team", "b")}, {})
    assert watch.finished == {("team", "a"): 5}, "only its version is kept"
    watch.forget(done)


def test_a_complete_verification_that_stands_alone_is_forgotten_by_itself():
    watch = Watch()
    watch.see_verifier(verifier())
    watch.forget_verifier(verifier())
    assert (watch.verifiers, watch.finished) == ({}, {})
    assert list(watch.finished_verifiers) == [(VERIFIER.namespace, VERIFIER.name)]


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (pod(node="n"), 1),
        (pod(node="n", scheduled="True"), 1),
        (pod(), 1),
        (pod(scheduled="False"), 0),
        (pod(node="n", phase="Running"), 0),
        (pod(node="n", phase="Failed"), 0),
        (pod(node="n", deletionTimestamp="x"), 0),
    ],
    ids=[
        "bound",
        "bound, the scheduler's word",
        "not bound yet",
        "not schedulable",
        "running",
        "failed",
        "being deleted",
    ],
)
def test_pods_on_their_way_are_counted(found, count):
    watch = Watch()
    watch.see_pod(found)
    assert watch.starting() == count


def test_the_digest_is_computed_anew_when_the_generation_says_that_the_spec_changed():
    watch = Watch()
    first = obj(version="5")
    first["metadata"]["generation"] = 1
    watch.see_run(first)
    digest = watch.runs["team", "a"].spec_digest
    later = obj(version="6", status={"phase": "Queued"})
    later["metadata"]["generation"] = 1
    watch.see_run(later)
    assert watch.runs["team", "a"].spec_digest == digest
    changed = obj(version="7")
    changed["metadata"]["generation"] = 2
    changed["spec"] = {**changed["spec"], "podRetention": "Always", "dialect": "harbor"}
    watch.see_run(changed)
    assert watch.runs["team", "a"].spec_digest != digest


def test_an_object_is_parsed_once_for_each_version():
    watch = Watch()
    watch.see_run(obj(version="5"))
    assert watch.runs["team", "a"].run is watch.runs["team", "a"].run
