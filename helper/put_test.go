package main

import (
	"bytes"
	"os"
	"testing"
)

func TestPutCopiesByteForByte(t *testing.T) {
	root := t.TempDir()
	content := append(bytes.Repeat([]byte{0, 0xff, '\n'}, 100_000), 0)
	must(t, os.WriteFile(root+"/source", content, 0o600))
	must(t, os.WriteFile(root+"/there", bytes.Repeat([]byte("longer"), 1_000_000), 0o640))
	must(t, os.Symlink(root+"/there", root+"/link"))
	for _, target := range []string{"/new", "/there", "/link"} {
		must(t, runPut([]string{root + "/source", root + target}))
		if found, err := os.ReadFile(root + target); err != nil || !bytes.Equal(found, content) {
			t.Fatalf("%s: %d bytes, %v", target, len(found), err)
		}
	}
	if info, _ := os.Lstat(root + "/link"); info.Mode()&os.ModeSymlink == 0 {
		t.Fatal("the link was replaced")
	}
	if info, _ := os.Stat(root + "/there"); info.Mode() != 0o640 {
		t.Fatal("the mode of a file that was there has changed:", info.Mode())
	}
}

func TestPutSaysWhatIsWrong(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(root+"/source", []byte("x"), 0o600))
	for _, args := range [][]string{
		{}, {root + "/source"}, {root + "/none", root + "/new"}, {root + "/source", root + "/none/new"}, {root + "/source", root}, {root, root + "/new"},
	} {
		if err := runPut(args); err == nil {
			t.Fatalf("%q was copied", args)
		}
	}
}
