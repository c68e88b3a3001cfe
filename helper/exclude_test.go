package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var excludeTree = []string{
	"b/c/f.pyc", "foo/y", "x/foo/z", ".hid", "b/.hid2", "node_modules/m/i", "we[ird]", "b/back\\slash", "new\nline", "b/a-c", "b/]",
	"[", "UP/é",
}

// excludePatterns: names without stars, in part, unanchored, with slashes; wildcards over slashes; brackets that end and
// do not; escapes; what matches the root itself, and what nothing can match.
var excludePatterns = []string{
	"*.pyc", "foo", "foo/", "b/c", "./b", "a/b", "/foo", "b/*", "*", "c/f*", "b*f.pyc", ".*", ".", "x/foo", "*/foo", "we[ird]",
	`we\[ird\]`, "[!a-z]*", "[^a-z]*", "", "/", `back\\slash`, "?oo", "**/foo", "foo*z", "x//foo", "b/", "node_modules/*", "./*.pyc", "/*", "[",
	"[[:upper:]]*", "*[[:digit:]]", "[]]", "b/[a-c]-?", `b/a\-c`, "new*e", "?", "??", "*c", "[a", "é", "b/?hid2", "n*/i", "[[:nothing:]]", `\`,
}

// kept gives what is packed of the tree, below the root.
func kept(t *testing.T, root, pattern string) []string {
	t.Helper()
	request := &packRequest{MaxBytes: 1 << 20, MaxEntries: 100, Roots: []packRoot{{Path: root, As: ".", Exclude: excludes{pattern}}}}
	data, end := packAll(t, request)
	if end.SkippedCount != 0 || end.Truncated {
		t.Fatalf("%q: what is left out counts: %+v", pattern, end)
	}
	var names []string
	for name := range namesOf(t, data) {
		if name != "./" {
			names = append(names, strings.TrimSuffix(name, "/"))
		}
	}
	slices.Sort(names)
	return names
}

func plantTree(t *testing.T) string {
	root := t.TempDir()
	for _, name := range excludeTree {
		must(t, os.MkdirAll(filepath.Dir(root+"/"+name), 0o755))
		must(t, os.WriteFile(root+"/"+name, nil, 0o600))
	}
	return root
}

func TestExcludeIsTars(t *testing.T) {
	if version, err := exec.Command("tar", "--version").Output(); err != nil || !strings.Contains(string(version), "GNU tar") {
		t.Skip("needs GNU tar to compare with")
	}
	root := plantTree(t)
	for _, pattern := range excludePatterns {
		list := exec.Command("sh", "-c", `tar -C "$1" --exclude="$2" -cf - . | tar -tf - --null --quoting-style=escape`, "sh", root, pattern)
		list.Env = append(os.Environ(), "LC_ALL=C")
		output, err := list.Output()
		must(t, err)
		var want []string
		for line := range strings.Lines(string(output)) {
			name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "./"), "/")
			name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\303\251`, "é").Replace(name)
			if name != "" {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if got := kept(t, root, pattern); !slices.Equal(got, want) {
			t.Errorf("%q keeps\n%q, tar keeps\n%q", pattern, got, want)
		}
	}
}

func TestExclude(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.pyc", "a/b.pyc", true}, {"b/c", "a/b/c", true}, {"b/c", "ab/c", false}, {"c/", "c", false}, {"a*c", "a/b/c", true},
		{"[a-c]x", "d/bx", true}, {"[!a-c]x", "bx", false}, {`\*`, "*", true}, {`\*`, "a", false}, {"[", "[", true}, {"a[", "a[", true},
	} {
		if got := (excludes{"nothing", c.pattern}).below(c.name); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestExcludeOfAHostilePatternEnds(t *testing.T) {
	began := time.Now()
	if (excludes{strings.Repeat("*a", 500) + "b"}).below(strings.Repeat("a", 4000)) || time.Since(began) > patience {
		t.Fatal("it matches, or takes for ever")
	}
}

func TestExcludesHaveBounds(t *testing.T) {
	for _, e := range []excludes{make(excludes, maxExcludes+1), {strings.Repeat("a", maxPattern+1)}, {"a\x00"}} {
		r := packRequest{Protocol: 1, Roots: []packRoot{{Path: "/x", As: "x", Exclude: e}}}
		if r.validate() == nil {
			t.Error(len(e))
		}
	}
}
