"""Pull mode: what a Dockerfile sets, and which ones need more than that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import dockerfile, errors
from taskfold.contract.dockerfile import ImageConfig, Mode, RunLine

BASE = ImageConfig(
    env={"PATH": "/bin", "HOME": "/root"}, workdir="/srv", user="www", entrypoint=("run",), cmd=("serve",)
)


def parse(*lines):
    return dockerfile.parse("\n".join(lines).encode())


def applied(*lines, base=BASE):
    parsed = parse("FROM base:1", *lines)
    assert parsed.mode is Mode.PULL, parsed.because
    return dockerfile.apply(parsed.instructions, base)


def test_a_from_alone_leaves_the_base_as_it_is():
    assert applied() == BASE


@pytest.mark.parametrize(
    ("line", "base"),
    [
        ("FROM python:3.12", "python:3.12"),
        ("from  python", "python"),
        ("FROM python AS base", "python"),
        ("FROM a/b@sha256:" + "0" * 64 + " as x", "a/b@sha256:" + "0" * 64),
        ("\ufeffFROM python", "python"),
        ("# syntax=docker/dockerfile:1\n\n# a comment\nFROM python", "python"),
        ("FROM python\r", "python"),
        ("FROM \\\n  python", "python"),
    ],
)
def test_the_base_is_taken_as_written(line, base):
    assert parse(line).instructions.base == base


@pytest.mark.parametrize(
    ("lines", "workdir"),
    [
        (["WORKDIR /app"], "/app"),
        (["WORKDIR app"], "/srv/app"),
        (["WORKDIR /a", "WORKDIR b", "WORKDIR ../c"], "/a/c"),
        (["WORKDIR $HOME/x"], "/root/x"),
        (['WORKDIR "/a b"'], "/a b"),
        (["WORKDIR //x//y/"], "/x/y"),
        (["WORKDIR ../../.."], "/"),
    ],
)
def test_a_workdir_is_joined_to_the_one_before(lines, workdir):
    assert applied(*lines).workdir == workdir


def test_without_a_workdir_of_the_base_a_relative_one_starts_at_the_root():
    assert applied("WORKDIR app", base=ImageConfig()).workdir == "/app"


@pytest.mark.parametrize(
    ("lines", "env"),
    [
        (["ENV A=1"], {"A": "1"}),
        (["ENV A=1 B=2"], {"A": "1", "B": "2"}),
        (["ENV A=\"x y\" B='$HOME' C=\\$HOME D=a\\ b"], {"A": "x y", "B": "$HOME", "C": "$HOME", "D": "a b"}),
        (["ENV A old  form $HOME"], {"A": "old  form /root"}),
        (["ENV\tA\told"], {"A": "old"}),
        (["ENV A=a\tB=b"], {"A": "a", "B": "b"}),
        (["ENV A=1", "ENV B=$A$A"], {"A": "1", "B": "11"}),
        (["ENV A=1", "ENV A=2 B=$A"], {"A": "2", "B": "1"}),
        (["ENV PATH=/x:$PATH"], {"PATH": "/x:/bin"}),
        (["ENV A=${NOPE:-d} B=${NOPE}"], {"A": "d", "B": ""}),
        (["ENV A=1 \\", "    B=2 \\", "# a comment", "", "    C=3"], {"A": "1", "B": "2", "C": "3"}),
        (["ENV A=x=y"], {"A": "x=y"}),
        (["ENV A="], {"A": ""}),
    ],
    ids=lambda value: " / ".join(value) if isinstance(value, list) else None,
)
def test_variables_are_added_to_the_bases(lines, env):
    assert applied(*lines).env == {**BASE.env, **env}


@pytest.mark.parametrize(
    ("line", "user"), [("USER app", "app"), ("USER 1000:1000", "1000:1000"), ("USER ${NOPE:-x}:y", "x:y")]
)
def test_the_user_replaces_the_bases(line, user):
    assert applied(line).user == user


def test_entrypoint_brackets_turns_the_entrypoint_off():
    assert (applied("ENTRYPOINT []").entrypoint, applied("ENTRYPOINT [ ]").cmd) == ((), ())


def test_cmd_brackets_and_labels_change_nothing():
    assert applied("CMD []", "LABEL a=b c='d e'", "label x y") == BASE


def test_the_escape_directive_is_followed():
    parsed = dockerfile.parse(b"# escape=`\nFROM a\nENV A=\\x `\n  B=`$A\n")
    assert dockerfile.apply(parsed.instructions, ImageConfig()).env == {"A": "\\x", "B": "$A"}


def test_a_directive_after_a_comment_is_a_comment():
    parsed = dockerfile.parse(b"# hello\n# escape=`\nFROM a\nENV A=1 \\\n B=2\n")
    assert dockerfile.apply(parsed.instructions, ImageConfig()).env == {"A": "1", "B": "2"}


def test_the_base_that_is_given_is_never_changed():
    applied("ENV A=1", "USER x")
    assert BASE.env == {"PATH": "/bin", "HOME": "/root"}


@pytest.mark.parametrize(
    ("lines", "because"),
    [
        (["FROM a", "COPY x y"], "line 2: COPY"),
        (["FROM a", "ADD x y"], "line 2: ADD"),
        (["FROM a", "FROM b"], "line 2: a second FROM"),
        (["ARG V=1", "FROM a:$V"], "line 1: ARG"),
        (["FROM a:$V"], "line 1: FROM with a variable"),
        (["FROM --platform=linux/amd64 a"], "line 1: FROM with a flag"),
        (["FROM a", "ARG X"], "line 2: ARG"),
        (["FROM a", 'ENTRYPOINT ["x"]'], "line 2: ENTRYPOINT"),
        (["FROM a", "ENTRYPOINT x"], "line 2: ENTRYPOINT"),
        (["FROM a", 'CMD ["x"]'], "line 2: CMD"),
        (["FROM a", "HEALTHCHECK NONE"], "line 2: HEALTHCHECK"),
        (["FROM a", "EXPOSE 80"], "line 2: EXPOSE"),
        (["FROM a", "VOLUME /x"], "line 2: VOLUME"),
        (["FROM a", "SHELL []"], "line 2: SHELL"),
        (["FROM a", "STOPSIGNAL 9"], "line 2: STOPSIGNAL"),
        (["FROM a", "ONBUILD RUN x"], "line 2: ONBUILD"),
        (["FROM a", "RUN --mount=type=cache,target=/x y"], "line 2: RUN with a flag"),
        (["FROM a", "RUN <<EOF", "COPY x y", "EOF"], "line 2: RUN with a heredoc"),
        (["FROM a", "RUN x", "COPY x y"], "line 3: COPY"),
        (["FROM a", "ENV A=${B#x}"], "line 2: ENV: what follows ${B needs BuildKit"),
        (["FROM a", "NONSENSE"], "line 2: NONSENSE"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_anything_else_needs_a_build_and_the_line_is_named(lines, because):
    parsed = parse(*lines)
    assert (parsed.mode, parsed.instructions, parsed.because) == (Mode.BUILD, None, because)


def overlaid(*lines, base=BASE):
    parsed = parse("FROM base:1", *lines)
    assert (parsed.mode, parsed.instructions.overlay) == (Mode.OVERLAY, True)
    return dockerfile.overlays(parsed.instructions, base)


def test_run_lines_make_it_an_overlay():
    parsed = parse("FROM a", "ENV A=1", "RUN x \\", "  && y", "WORKDIR /x", "RUN z")
    assert (parsed.mode, parsed.because) == (Mode.OVERLAY, "line 3: RUN")
    assert [step.text for step in parsed.instructions.steps if isinstance(step, RunLine)] == ["x   && y", "z"]


def test_a_run_line_has_what_is_in_effect_there():
    first, second, third = overlaid(
        "ENV A=1", "RUN one", "USER app", "WORKDIR sub", "ENV A=2 B=$A", "RUN two", "USER root", "RUN three", "ENV C=1"
    )
    assert [each.run.line for each in (first, second, third)] == [3, 7, 9]
    assert (first.config.env, first.config.user, first.config.workdir) == ({**BASE.env, "A": "1"}, "www", "/srv")
    assert (second.config.env, second.config.user) == ({**BASE.env, "A": "2", "B": "1"}, "app")
    assert (second.config.workdir, third.config.user) == ("/srv/sub", "root")
    assert "C" not in third.config.env


def test_what_an_overlay_sets_is_set_as_in_a_build():
    parsed = parse("FROM base:1", "ENV A=1", "RUN x", "WORKDIR /app", "USER app", "ENTRYPOINT []")
    assert dockerfile.apply(parsed.instructions, BASE) == ImageConfig({**BASE.env, "A": "1"}, "/app", "app")


@pytest.mark.parametrize(
    ("line", "text", "argv"),
    [
        ("RUN echo $A 'b c'", "echo $A 'b c'", ()),
        ('RUN ["echo", "$A"]', '["echo", "$A"]', ("echo", "$A")),
        ("RUN [ -e /x ]", "[ -e /x ]", ()),
        ("RUN []", "[]", ()),
        ('RUN ["a", 1]', '["a", 1]', ()),
        ("RUN echo $((1 << 2))", "echo $((1 << 2))", ()),
        ("RUN cat <<< word", "cat <<< word", ()),
        ("RUN a \\\n  # a comment\n  && b", "a   && b", ()),
    ],
)
def test_both_forms_of_run(line, text, argv):
    (found,) = overlaid(line)
    assert (found.run.text, found.run.argv) == (text, argv)


def test_a_great_many_run_lines_need_a_build():
    assert parse("FROM a", *["RUN x"] * 64).mode is Mode.OVERLAY
    parsed = parse("FROM a", *["RUN x"] * 65)
    assert (parsed.mode, parsed.because) == (Mode.BUILD, "line 66: more than 64 RUN lines")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([""], "is empty"),
        (["# only", "", "  "], "is empty"),
        (["RUN x"], "line 1: RUN: comes before FROM"),
        (["WORKDIR /x", "FROM a"], "line 1: WORKDIR: comes before FROM"),
        (["FROM"], "line 1: FROM: takes one image"),
        (["FROM a b"], "line 1: FROM: takes one image"),
        (["FROM a AS"], "line 1: FROM: takes one image"),
        (["FROM scratch"], "line 1: FROM: the image scratch is empty"),
        (["FROM A:b"], 'line 1: FROM: "A:b" is not an image reference'),
        (["FROM a", "ENV"], "line 2: ENV: has no argument"),
        (["FROM a", "ENV A"], "line 2: ENV: needs a name and a value"),
        (["FROM a", "ENV A=1 B"], 'line 2: ENV: "B" is not name=value'),
        (["FROM a", "ENV =1"], 'line 2: ENV: "=1" is not name=value'),
        (["FROM a", 'ENV A="x'], 'line 2: ENV: a quote (") is not closed'),
        (["FROM a", "USER"], "line 2: USER: has no argument"),
        (["FROM a", "RUN"], "line 2: RUN: has no argument"),
        (["FROM a", "RUN a\0b"], "line 2: RUN: has a NUL byte"),
        (["FROM a", 'RUN [""]'], "line 2: RUN: names no program"),
        (["FROM a", "", "# x", "WORKDIR 'a"], "line 4: WORKDIR: a quote (') is not closed"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_docker_build_refuses_is_refused_with_its_line(lines, problem):
    with pytest.raises(errors.TaskError) as caught:
        parse(*lines)
    assert str(caught.value).startswith(f"environment/Dockerfile: {problem}")
    assert not caught.value.unsupported


def test_bytes_that_are_not_utf_8_are_refused():
    with pytest.raises(errors.TaskError, match="not UTF-8"):
        dockerfile.parse(b"FROM a\xff")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("python", "python:latest", True),
        ("python:3", "docker.io/library/python:3", True),
        ("python:3", "index.docker.io/library/python:3", True),
        ("a/b", "docker.io/a/b:latest", True),
        ("python:3", "python:3.12", False),
        ("python:3", "library/other:3", False),
        ("localhost/python:3", "python:3", False),
        ("localhost:5000/a", "localhost:5000/a:latest", True),
        ("reg.io/a", "a", False),
        ("a@sha256:" + "0" * 64, "a@sha256:" + "0" * 64, True),
        ("a@sha256:" + "0" * 64, "a", False),
    ],
)
def test_two_spellings_of_one_image(one, other, same):
    assert dockerfile.same_image(one, other) is same


def test_an_oci_configuration_is_read():
    config = dockerfile.image_config(
        {
            "Env": ["PATH=/bin", "A=x=y", "EMPTY=", 5],
            "WorkingDir": "/w",
            "User": "app",
            "Entrypoint": ["e"],
            "Cmd": None,
            "Healthcheck": {"Test": ["CMD", "x"]},
            "Shell": ["/bin/bash", "-c"],
        }
    )
    assert config == ImageConfig(
        {"PATH": "/bin", "A": "x=y", "EMPTY": ""}, "/w", "app", ("e",), (), {"Test": ["CMD", "x"]}, ("/bin/bash", "-c")
    )
    assert dockerfile.image_config({}) == ImageConfig()


LINES = st.lists(
    st.tuples(
        st.sampled_from(["FROM", "ENV", "WORKDIR", "USER", "LABEL", "RUN", "COPY", "ENTRYPOINT", "CMD", "#", "X", ""]),
        st.text(st.sampled_from("ab=/ \\\"'${}:-[]\t1"), max_size=12),
    ).map(" ".join),
    max_size=6,
)


@given(LINES.map("\n".join) | st.text())
def test_any_text_is_a_dockerfile_or_a_task_error(text):
    try:
        parsed = dockerfile.parse(text.encode("utf-8", "replace"))
    except errors.TaskError as error:
        assert str(error).encode()
        return
    assert (parsed.instructions is None) == (parsed.mode is Mode.BUILD)
    assert bool(parsed.because) == (parsed.mode is not Mode.PULL)
    if parsed.instructions is not None:
        assert parsed.instructions.overlay == (parsed.mode is Mode.OVERLAY)
        assert parsed.instructions.overlay == bool(dockerfile.overlays(parsed.instructions, BASE))
        config = dockerfile.apply(parsed.instructions, BASE)
        assert config.workdir.startswith("/")
        assert set(BASE.env) <= set(config.env)


NAMES = st.text(st.sampled_from("ABC_"), min_size=1, max_size=3)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0'", exclude_categories=("Cc",)))


@given(st.dictionaries(NAMES, PLAIN, min_size=1))
def test_a_quoted_value_comes_back_as_it_is(variables):
    line = "ENV " + " ".join(f"{name}='{value}'" for name, value in variables.items())
    if line.endswith("\\"):
        return
    assert applied(line, base=ImageConfig()).env == variables
