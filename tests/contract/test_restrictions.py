"""Which network each sandbox of a task has, in both dialects, and what no sandbox can have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import build
from tests.contract.build import IMAGE

from taskfold.contract import dialect, errors, loader, network, restrictions, separate, steps, toml_file
from taskfold.contract.network import NO_NETWORK, PUBLIC
from taskfold.contract.task_toml import TaskToml, VerifierMode

STEPS = {"steps/a/instruction.md": "", "steps/b/instruction.md": ""}
OWN = 'verifier.environment.docker_image = "own"'
SEPARATE = 'verifier.environment_mode = "separate"'


def only(*hosts):
    return network.of(network.NetworkMode.ALLOWLIST, hosts)


def load(*lines, mode=None, rules=dialect.HARBOR, files=None):
    terms = loader.Terms(mode, rules)
    return loader.load(build.folder(build.toml(*lines) | STEPS | (files or {})), task_id="t", terms=terms)


def refusal(*lines, mode=None, rules=dialect.HARBOR):
    """What the folder is refused for: the fields, and the first error."""
    with pytest.raises(errors.TaskError) as caught:
        load(*lines, mode=mode, rules=rules)
    return [caught.value.field, *(each.field for each in caught.value.others)], caught.value


def allow(table, *hosts):
    return f'{table}.network_mode = "allowlist"\n{table}.allowed_hosts = [{", ".join(map(repr, hosts))}]'


# the contract's dialect

VERIFIERS = {
    "unset": ([SEPARATE], PUBLIC),
    "public": ([SEPARATE, 'verifier.network_mode = "public"'], PUBLIC),
    "no network": ([SEPARATE, 'verifier.network_mode = "no-network"'], NO_NETWORK),
    "with a sandbox of its own": ([OWN, 'verifier.network_mode = "no-network"'], NO_NETWORK),
    "an allowlist": ([SEPARATE, allow("verifier", "B.c.", "*.a", "10.0.0.0/8")], only("*.a", "10.0.0.0/8", "b.c")),
    "an empty allowlist": ([SEPARATE, allow("verifier")], NO_NETWORK),
    "an allowlist without a list": ([SEPARATE, 'verifier.network_mode = "allowlist"'], NO_NETWORK),
}


@pytest.mark.parametrize("rules", dialect.RULES.values(), ids=dialect.RULES)
@pytest.mark.parametrize(("lines", "reach"), VERIFIERS.values(), ids=VERIFIERS)
def test_a_separate_verifier_is_restricted_by_its_own_table(lines, reach, rules):
    task = load(*lines, rules=rules)
    assert (task.network, task.separate.network, separate.sandbox(task).network) == (PUBLIC, reach, reach)


def test_of_a_step_its_own_table_counts_and_else_the_tasks():
    lines = (
        SEPARATE,
        allow("verifier", "a.b"),
        'steps = [{name = "a", verifier = {network_mode = "no-network"}}, {name = "b"}]',
    )
    task = load(*lines, rules=dialect.GYM)
    turns = steps.turns(task)
    assert [turn.network for turn in turns] == [PUBLIC, PUBLIC]
    assert [separate.sandbox(turn).network for turn in turns] == [NO_NETWORK, only("a.b")]


def test_a_step_may_lift_its_verifiers_restriction_by_saying_so():
    lines = (
        SEPARATE,
        'verifier.network_mode = "no-network"',
        'steps = [{name = "a", verifier.network_mode = "public"}]',
    )
    (turn,) = steps.turns(load(*lines, rules=dialect.GYM))
    assert separate.sandbox(turn).network == PUBLIC


def test_hosts_of_the_task_are_none_of_a_steps_own_allowlist():
    lines = (SEPARATE, allow("verifier", "a.b"), 'steps = [{name = "a", verifier.network_mode = "allowlist"}]')
    (turn,) = steps.turns(load(*lines, rules=dialect.GYM))
    assert separate.sandbox(turn).network == NO_NETWORK


def test_a_run_that_shares_the_sandbox_does_not_lose_a_restriction_silently():
    lines = (OWN, 'verifier.network_mode = "no-network"')
    fields, error = refusal(*lines, mode=VerifierMode.SHARED, rules=dialect.GYM)
    assert fields == ["verifier.network_mode"]
    assert "shares the agent's sandbox" in str(error)


def test_what_several_steps_inherit_is_refused_once():
    lines = ('verifier.network_mode = "no-network"', 'steps = [{name = "a"}, {name = "b"}]')
    fields, _ = refusal(*lines, rules=dialect.GYM)
    assert fields == ["verifier.network_mode"]


@pytest.mark.parametrize("table", ["environment", "agent", "verifier.environment"])
def test_the_remedy_names_what_may_be_written_instead(table):
    lines = (OWN, f'{table}.network_mode = "no-network"')
    _, error = refusal(*lines, rules=dialect.GYM)
    assert ("[verifier]" if "verifier" in table else "spec.network.agent") in error.remedy


# the harbor dialect

NOTHING = 'environment.network_mode = "no-network"'
NO_AGENT = 'agent.network_mode = "no-network"'
AGENTS = {
    "[environment]": ([NOTHING], NO_NETWORK),
    "the old spelling": (["environment.allow_internet = false"], NO_NETWORK),
    "an allowlist": ([allow("environment", "a.b")], only("a.b")),
    "both say the same": ([NOTHING, 'agent.network_mode = "no-network"'], NO_NETWORK),
    "[verifier] too": ([NOTHING, 'verifier.network_mode = "no-network"'], NO_NETWORK),
    "the same list in another order": ([allow("environment", "a", "b"), allow("agent", "b", "a")], only("a", "b")),
    "[agent] alone": ([SEPARATE, 'agent.network_mode = "no-network"'], NO_NETWORK),
    "[agent] alone, and [verifier] says the same": (
        ['agent.network_mode = "no-network"', 'verifier.network_mode = "no-network"'],
        NO_NETWORK,
    ),
    "[agent] below [environment]": ([SEPARATE, allow("environment", "*.b"), allow("agent", "a.b")], only("a.b")),
    "steps": ([NOTHING, 'steps = [{name = "a"}, {name = "b", agent.network_mode = "no-network"}]'], NO_NETWORK),
}


@pytest.mark.parametrize(("lines", "reach"), AGENTS.values(), ids=AGENTS)
def test_the_agents_sandbox_in_the_harbor_dialect(lines, reach):
    task = load(*lines)
    assert task.network == reach
    assert {turn.network for turn in steps.turns(task)} == {reach}


SANDBOXES = {
    "the task's environment": ([SEPARATE, NOTHING], NO_NETWORK),
    "its own": ([OWN, 'verifier.environment.network_mode = "no-network"'], NO_NETWORK),
    "its own, which the task's does not restrict": ([OWN, NOTHING], PUBLIC),
    "what [verifier] says wins over the task's environment": (
        [SEPARATE, NOTHING, allow("verifier", "judge.a")],
        only("judge.a"),
    ),
    "what [verifier] says is below its own": ([OWN, allow("verifier", "judge.a")], only("judge.a")),
    "public": ([SEPARATE, NOTHING, 'verifier.network_mode = "public"'], PUBLIC),
}


@pytest.mark.parametrize(("lines", "reach"), SANDBOXES.values(), ids=SANDBOXES)
def test_the_verifiers_sandbox_in_the_harbor_dialect(lines, reach):
    assert separate.sandbox(load(*lines)).network == reach


CHANGES = {
    "of the agent alone": (['agent.network_mode = "no-network"'], "agent.network_mode", "[environment]'s"),
    "of a shared verifier alone": (['verifier.network_mode = "no-network"'], "verifier.network_mode", "than the agent"),
    "a shared verifier that may do more": (
        [NOTHING, 'verifier.network_mode = "public"'],
        "verifier.network_mode",
        "than the agent",
    ),
    "an agent that may do more": ([NOTHING, SEPARATE, allow("agent", "a.b")], "agent.network_mode", "[environment]"),
    "an agent that may do other things": (
        [SEPARATE, allow("environment", "a.b"), allow("agent", "c.d")],
        "agent.network_mode",
        "[environment]",
    ),
    "test.sh that may do more": (
        [OWN, 'verifier.environment.network_mode = "no-network"', allow("verifier", "a.b")],
        "verifier.network_mode",
        "[verifier.environment]",
    ),
    "a second step that may do less": (
        [SEPARATE, 'steps = [{name = "a"}, {name = "b", agent.network_mode = "no-network"}]'],
        "steps[1].agent.network_mode",
        "through all steps",
    ),
    "a second step that may do more": (
        [SEPARATE, NO_AGENT, 'steps = [{name = "a"}, {name = "b", agent.network_mode = "public"}]'],
        "steps[1].agent.network_mode",
        "through all steps",
    ),
    "a step's shared verifier": (
        [NOTHING, 'steps = [{name = "a"}, {name = "b", verifier.network_mode = "public"}]'],
        "steps[1].verifier.network_mode",
        "than the agent",
    ),
}


@pytest.mark.parametrize(("lines", "field", "words"), CHANGES.values(), ids=CHANGES)
def test_what_would_change_in_a_sandboxs_mid_life_is_refused_with_the_reason(lines, field, words):
    fields, error = refusal(*lines)
    assert fields == [field]
    assert not error.unsupported
    assert words in error.problem
    assert "never changed in mid-life" in error.problem


def test_what_comes_before_the_agent_is_under_its_restriction_which_is_a_warning():
    task = load(SEPARATE, 'agent.network_mode = "no-network"')
    assert any(each.startswith("task.toml: agent.network_mode holds for") for each in task.warnings)
    assert not any("network_mode" in each for each in load(SEPARATE, NOTHING).warnings)


def test_what_restricts_a_sandbox_is_told_where_it_is_written():
    lines = (f'environment.docker_image = "{IMAGE}"', NOTHING, SEPARATE, allow("verifier", "a.b"))
    config = toml_file.read("\n".join(lines).encode()).config
    found = [(said.at, said.network) for said in restrictions.restricted(config)]
    assert found == [(("environment",), NO_NETWORK), (("verifier",), only("a.b"))]


# whatever the tables say: no phase gets what its own table does not allow

HOSTS = ("a.b", "c.a.b", "d", "10.0.0.1", "10.0.1.1")
SAYS = st.sampled_from(
    [None, *([mode, ()] for mode in ("public", "no-network", "allowlist"))]
    + [["allowlist", hosts] for hosts in (("a.b",), ("*.a.b",), ("a.b", "*.a.b", "10.0.0.0/24"), ("10.0.0.1",))]
)
TABLES = ("environment", "agent", "verifier", "verifier.environment")
TABLES += ("one.agent", "one.verifier", "two.agent", "two.verifier")


def document(said, *, shared, stepped):
    """A task.toml as data, with these networks in these tables."""
    one, two = {"name": "one"}, {"name": "two"}
    written = {"environment": {}, "verifier": {"environment_mode": "shared" if shared else "separate"}}
    for name, says in said.items():
        if says is None or (name == "verifier.environment" and shared):
            continue
        *above, last = name.split(".")
        at = {"one": one, "two": two}.get(above[0], written.get(above[0])) if above else written
        table = at.setdefault(last, {})
        table["network_mode"] = says[0]
        if says[0] == "allowlist":
            table["allowed_hosts"] = list(says[1])
    return written | ({"steps": [one, two]} if stepped else {})


def phases(said, *, shared, stepped):
    """What Harbor's tables say of each phase: those in the agent's sandbox, those in each verifier's."""
    environment = said["environment"] or ["public", ()]
    agents, verifiers = [environment], []
    for step in ("one", "two") if stepped else (None,):
        agents.append(said.get(f"{step}.agent") or said["agent"] or environment)
        verifier = said.get(f"{step}.verifier") or said["verifier"]
        if shared:
            agents.append(verifier or environment)
        else:
            own = said["verifier.environment"]
            verifiers.append([verifier or own or environment, *([own] if own else [])])
    return agents, verifiers


def allowed(says, host):
    return network.allows(network.of(network.NetworkMode(says[0]), says[1]), host)


@given(st.fixed_dictionaries(dict.fromkeys(TABLES, SAYS)), st.booleans(), st.booleans())
def test_no_phase_of_a_task_that_is_not_refused_gets_more_than_its_table_allows(said, shared, stepped):
    written = document(said, shared=shared, stepped=stepped)
    config = TaskToml.model_validate(written)
    if any(restrictions.refused(config, written, dialect.HARBOR)):
        return
    agents, verifiers = phases(said, shared=shared, stepped=stepped)
    reach = restrictions.of_agent(config)
    for host in HOSTS:
        assert not network.allows(reach, host) or all(allowed(says, host) for says in agents)
    for part, says in zip(separate.verifications(config), verifiers, strict=not shared):
        own = part.verifier.environment if part.verifier.environment is not None else config.environment
        for host in HOSTS:
            assert not network.allows(restrictions.of_verifier(part.verifier, own), host) or all(
                allowed(each, host) for each in says
            )


@given(st.fixed_dictionaries(dict.fromkeys(TABLES, SAYS)), st.booleans(), st.booleans())
def test_in_the_contracts_dialect_only_a_separate_verifiers_table_restricts(said, shared, stepped):
    written = document(said, shared=shared, stepped=stepped)
    config = TaskToml.model_validate(written)
    if not any(restrictions.refused(config, written, dialect.GYM)):
        assert restrictions.of_agent(config) == PUBLIC
        assert {each.at[-1] for each in restrictions.restricted(config)} <= {"verifier"}
        assert not (shared and restrictions.restricted(config))


# what a run asks for


def test_a_run_writes_hosts_as_a_folder_does():
    found = restrictions.asked("allowlist", ["A.b.", "*.b"], file="TaskRun", field="spec.network.agent")
    assert found == only("*.b")
    assert restrictions.asked("no-network", [], file="TaskRun", field="spec.network.agent") == NO_NETWORK
    assert restrictions.asked("public", [], file="TaskRun", field="spec.network.agent") == PUBLIC


def test_every_host_of_a_run_that_is_none_is_told():
    with pytest.raises(errors.TaskError) as caught:
        hosts = ["https://a.b", "c.d", "10.0.0.1/8"]
        restrictions.asked("allowlist", hosts, file="TaskRun", field="spec.network.agent")
    first, (other,) = caught.value, caught.value.others
    assert str(first) == (
        'TaskRun: spec.network.agent.allowedHosts[0] = "https://a.b": is a URL. Write the host alone: an entry '
        "allows it, whatever is asked of it."
    )
    assert (other.field, other.value) == ("spec.network.agent.allowedHosts[2]", "10.0.0.1/8")
