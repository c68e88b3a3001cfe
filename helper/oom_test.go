package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestOOMCounter(t *testing.T) {
	root := t.TempDir()
	v1, v2, later := root+"/oom_control", root+"/memory.events", root+"/later"
	paths := []string{v2, v1}
	if got := openOOMCounter(paths).kills(); got != 0 {
		t.Fatal("absent:", got)
	}
	must(t, os.WriteFile(v1, []byte("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), 0o600))
	if got := openOOMCounter(paths).kills(); got != 7 {
		t.Fatal("version 1:", got)
	}
	must(t, os.WriteFile(v2, []byte("low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\noom_group_kill 9\n"), 0o600))
	counter := openOOMCounter(paths)
	if got := counter.kills(); got != 2 {
		t.Fatal("version 2:", got)
	}
	must(t, os.WriteFile(v2, []byte("oom_kill 5\n"), 0o600))
	if got := counter.kills(); got != 5 {
		t.Fatal("the kernel counts on:", got)
	}
	must(t, os.WriteFile(later, []byte("oom_kill 99\n"), 0o600))
	must(t, os.Rename(later, v2))
	if got := counter.kills(); got != 5 {
		t.Fatal("somebody replaced the file:", got)
	}
}

func TestOOMCounterTakesNoOtherFile(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/folder", 0o755))
	must(t, syscall.Mkfifo(root+"/fifo", 0o600))
	paths := []string{root + "/folder", root + "/fifo"}
	for name, content := range map[string]string{
		"empty": "", "old": "oom_kill_disable 0\nunder_oom 0\n", "word": "oom_kill many\n", "long": strings.Repeat("x", 1<<20),
	} {
		must(t, os.WriteFile(root+"/"+name, []byte(content), 0o600))
		paths = append(paths, root+"/"+name)
	}
	if counter := openOOMCounter(paths); counter.fd != -1 || counter.kills() != 0 {
		t.Fatalf("%+v", counter)
	}
}
