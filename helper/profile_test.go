package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// What a pod that is not root, or root of a user namespace only, can do.

func TestOwnNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		own  bool
	}{
		"the first one":       {"         0          0 4294967295\n", false},
		"root mapped to root": {"0 0 1\n1 100000 65535\n", false},
		"everybody but root":  {"0 4294967294 1\n1 1 4294967295\n", false},
		"a pod's own":         {"         0   65536      65536\n", true},
		"two ranges":          {"0 1000 1\n1 100000 65535\n", true},
		"nobody":              {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/map"
			must(t, os.WriteFile(file, []byte(c.text), 0o600))
			ranges, err := readMap(file)
			must(t, err)
			if err := ownNamespace(ranges); (err == nil) != c.own {
				t.Fatalf("%v: %v", ranges, err)
			}
		})
	}
}

func TestNumbersOfAMap(t *testing.T) {
	file := t.TempDir() + "/map"
	must(t, os.WriteFile(file, []byte("0 1000 1\n5 100000 10\n"), 0o600))
	for number, want := range map[int]bool{0: true, 1: false, 4: false, 5: true, 14: true, 15: false, 1<<32 - 2: false} {
		if got := mapped(file, number); got != want {
			t.Errorf("%d: %v", number, got)
		}
	}
	must(t, os.WriteFile(file, []byte("what is this\n"), 0o600))
	if _, err := readMap(file); err == nil || !mapped(file, 7) {
		t.Error("a map that cannot be read forbids nothing")
	}
}

func TestReachableUsers(t *testing.T) {
	own, other := &identity{UID: os.Geteuid(), GID: 12}, &identity{UID: os.Geteuid() + 1}
	if err := own.reachable(); err != nil {
		t.Error(err)
	}
	var forbidden forbiddenUser
	if err := other.reachable(); os.Geteuid() != 0 && !errors.As(err, &forbidden) {
		t.Errorf("%v", err)
	}
	if credential := own.credential(); os.Geteuid() != 0 && credential != nil {
		t.Error("it would need rights to stay who it is")
	}
}

func TestRootWithoutAUserNamespaceIsNoProof(t *testing.T) {
	s := newSandbox(t)
	r := s.phase(prepared(map[string]any{"op": "userNamespace"})).expect("failed")
	if r.Reason != "NoUserNamespace" || !strings.Contains(r.Message, "node") {
		t.Fatalf("%+v", r)
	}
}

func prepared(operations ...any) map[string]any {
	request := simple(nonce())
	request["prepare"] = operations
	return request
}

func TestWithoutRootOnlyOneUser(t *testing.T) {
	s := newSandboxOf(t, "1000")
	for _, user := range []map[string]any{{"uid": 1000}, {"name": "app"}, {"uid": 1000, "gid": 55, "groups": []int{1}}} {
		user["op"], user["required"] = "user", true
		r := s.phase(prepared(user)).expect("done")
		if len(r.Result.Prepared) == 0 {
			t.Fatalf("%v: %s", user, r.raw)
		}
	}
	for _, user := range []map[string]any{{"uid": 0}, {"name": "root"}, {"uid": 4321}} {
		user["op"], user["required"] = "user", true
		r := s.phase(prepared(user)).expect("failed")
		if r.Reason != "ForbiddenUser" || !strings.Contains(r.Message, "runs as user 1000") {
			t.Fatalf("%v: %s", user, r.raw)
		}
	}
	for _, user := range []map[string]any{{"uid": 1000}, {"name": "app"}, {"uid": 1000, "gid": 55}} {
		if result := s.run("id -u; echo $HOME", "user", user); string(result.Output.Inline) != "1000\n/home/app\n" {
			t.Fatalf("%v: %+v %s", user, result, result.Output.Inline)
		}
	}
}

// An agent of the same user may leave anything in the volumes of its pod. They are emptied in place, whatever it is.
func TestWithoutRootVolumesAreEmptiedInPlace(t *testing.T) {
	s := newSandboxOf(t, "1000")
	for name, plant := range map[string]string{
		"nothing":          "",
		"files":            "touch a .b; mkdir -p c/d; touch c/d/e",
		"no rights":        "mkdir -p a/b; touch a/b/c; chmod 0 a/b/c a/b a",
		"links":            "ln -s /work w; ln -s / r; ln -s nowhere n; mkfifo f",
		"a link as folder": "ln -s /work logs",
		"deep":             "for i in $(seq 300); do mkdir d; cd d; done",
	} {
		s.run("touch /work/outside; cd /vol; " + plant)
		reset := map[string]any{"op": "reset", "path": "/vol"}
		logs := map[string]any{"op": "directory", "path": "/vol/logs", "mode": "0755", "user": map[string]any{"uid": 1000}}
		s.phase(prepared(reset, logs)).expect("done")
		if left := s.run("cd /vol; ls -A; stat -c %F:%a:%u logs; ls /work"); string(left.Output.Inline) != "logs\ndirectory:755:1000\noutside\n" {
			t.Fatalf("%s: %s", name, left.Output.Inline)
		}
	}
	missing := map[string]any{"op": "directory", "path": "/usr/app", "mode": "0755", "user": map[string]any{"uid": 1000}, "links": "follow"}
	r := s.phase(prepared(missing)).expect("failed")
	if want := "permission denied"; r.Reason != "Prepare" || !strings.Contains(r.Message, want) {
		t.Fatal(fmt.Sprint(r))
	}
}
