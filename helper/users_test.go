package main

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func ptr[T any](v T) *T { return &v }

func TestLookupUser(t *testing.T) {
	dir := t.TempDir()
	passwd := "# comment\nroot:x:0:0:root:/root:/bin/sh\nbroken:x:a:b::/:\nshort:x:1\n+nis\napp:x:1000:1001:App:/home/app:/bin/sh\n" +
		"app:x:9:9:second:/x:\n1000:x:7:7:digits:/seven:\nbare:x:8:8:::\nmax:x:4294967295:0::/:\n"
	group := "root:x:0:root\nstaff:x:50:bare,app\nwheel:x:10:app\nwheel2:x:10:app\nbad:x:z:app\napp:x:1001:\n"
	must(t, os.WriteFile(dir+"/passwd", []byte(passwd), 0o600))
	must(t, os.WriteFile(dir+"/group", []byte(group), 0o600))
	for name, c := range map[string]struct {
		spec userSpec
		want identity
	}{
		"name":            {userSpec{Name: ptr("app")}, identity{1000, 1001, []int{50, 10}, "/home/app", "app"}},
		"digits are name": {userSpec{Name: ptr("1000")}, identity{7, 7, []int{}, "/seven", "1000"}},
		"no home":         {userSpec{Name: ptr("bare")}, identity{8, 8, []int{50}, "/", "bare"}},
		"uid known":       {userSpec{UID: ptr(1000)}, identity{1000, 1001, []int{50, 10}, "/home/app", "app"}},
		"uid unknown":     {userSpec{UID: ptr(4711)}, identity{4711, 0, []int{}, "/", ""}},
		"uid and gid":     {userSpec{UID: ptr(1000), GID: ptr(3)}, identity{1000, 3, []int{}, "/home/app", "app"}},
		"uid and group":   {userSpec{UID: ptr(1000), Group: ptr("staff")}, identity{1000, 50, []int{}, "/home/app", "app"}},
		"name and group":  {userSpec{Name: ptr("app"), Group: ptr("wheel")}, identity{1000, 10, []int{}, "/home/app", "app"}},
		"name and gid":    {userSpec{Name: ptr("app"), GID: ptr(77)}, identity{1000, 77, []int{}, "/home/app", "app"}},
		"all numbers":     {userSpec{UID: ptr(5), GID: ptr(3), Groups: &[]int{1, 2}}, identity{5, 3, []int{1, 2}, "/", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lookupUserIn(&c.spec, dir+"/passwd", dir+"/group")
			if err != nil || !reflect.DeepEqual(*got, c.want) {
				t.Fatalf("%+v %v, want %+v", got, err, c.want)
			}
		})
	}
	for _, name := range []string{"none", "bad", ""} {
		var unknown unknownUser
		spec := userSpec{Name: ptr("app"), Group: &name}
		if _, err := lookupUserIn(&spec, dir+"/passwd", dir+"/group"); !errors.As(err, &unknown) {
			t.Errorf("group %q: %v", name, err)
		}
	}
	for _, name := range []string{"none", "", "broken", "short", "max", "+nis"} {
		var unknown unknownUser
		if _, err := lookupUserIn(&userSpec{Name: &name}, dir+"/passwd", dir+"/group"); !errors.As(err, &unknown) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestLookupUserInHostileFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mkfifo(dir+"/fifo", 0o600))
	must(t, os.WriteFile(dir+"/long", []byte(strings.Repeat("x", 3<<20)), 0o600))
	for _, file := range []string{"/fifo", "/long", "/none", ""} {
		if _, err := lookupUserIn(&userSpec{Name: ptr("app")}, dir+file, dir+file); err == nil {
			t.Errorf("%s: found", file)
		}
		if id, err := lookupUserIn(&userSpec{UID: ptr(5)}, dir+file, dir+file); err != nil || id.UID != 5 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestMergeEnv(t *testing.T) {
	base := []string{"PATH=/bin", "HOME=/root", "A=1", "USER=image"}
	home := map[string]string{"HOME": "/home/app"}
	app := map[string]string{"HOME": "/home/app", "USER": "app", "LOGNAME": "app"}
	for name, c := range map[string]struct {
		extra map[string]string
		login map[string]string
		want  string
	}{
		"nothing":        {nil, nil, "A=1 HOME=/root PATH=/bin USER=image"},
		"a login":        {nil, app, "A=1 HOME=/home/app LOGNAME=app PATH=/bin USER=app"},
		"no name":        {nil, home, "A=1 HOME=/home/app PATH=/bin USER=image"},
		"home from env":  {map[string]string{"HOME": "/x"}, app, "A=1 HOME=/x LOGNAME=app PATH=/bin USER=app"},
		"user from env":  {map[string]string{"USER": "x"}, app, "A=1 HOME=/home/app LOGNAME=app PATH=/bin USER=x"},
		"replace":        {map[string]string{"A": "2", "B": ""}, nil, "A=2 B= HOME=/root PATH=/bin USER=image"},
		"home with NUL":  {nil, map[string]string{"HOME": "/a\x00b"}, "A=1 PATH=/bin USER=image"},
		"prefix is else": {map[string]string{"PAT": "x"}, nil, "A=1 HOME=/root PAT=x PATH=/bin USER=image"},
	} {
		if got := strings.Join(mergeEnv(base, c.extra, c.login), " "); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
