package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxUsersFile bounds /etc/passwd and /etc/group, which anybody in the container may have written.
const maxUsersFile = 4 << 20

// userSpec names a user: by name, or by number. A name of digits is still a name (decision C30). A group of its own,
// by name or number, stands for all groups, as docker has it.
type userSpec struct {
	Name   *string `json:"name,omitempty"`
	Group  *string `json:"group,omitempty"`
	UID    *int    `json:"uid,omitempty"`
	GID    *int    `json:"gid,omitempty"`
	Groups *[]int  `json:"groups,omitempty"`
}

// identity is a user as the kernel knows it.
type identity struct {
	UID    int
	GID    int
	Groups []int
	Home   string
}

// valid tells whether the kernel could take the numbers; -1 means "leave it" to it and is refused.
func (u *userSpec) valid() error {
	if (u.Name == nil) == (u.UID == nil) {
		return fmt.Errorf("a user has either a name or a uid")
	}
	if u.Name != nil && u.Groups != nil {
		return fmt.Errorf("a user with a name has no groups of its own")
	}
	if u.Group != nil && (u.GID != nil || u.Groups != nil) {
		return fmt.Errorf("a user has either a group or a gid with groups")
	}
	var numbers []int
	if u.UID != nil {
		numbers = append(numbers, *u.UID)
	}
	if u.GID != nil {
		numbers = append(numbers, *u.GID)
	}
	if u.Groups != nil {
		numbers = append(numbers, *u.Groups...)
	}
	for _, n := range numbers {
		if n < 0 || n >= 1<<32-1 {
			return fmt.Errorf("%d is not a user or group number", n)
		}
	}
	if u.Groups != nil && len(*u.Groups) > 65536 {
		return fmt.Errorf("more than 65536 groups")
	}
	return nil
}

// text is the user as an image's USER spells it.
func (u *userSpec) text() string {
	user, group := "", ""
	if u.Name != nil {
		user = *u.Name
	} else if u.UID != nil {
		user = strconv.Itoa(*u.UID)
	}
	if u.Group != nil {
		group = ":" + *u.Group
	}
	return user + group
}

// unknownUser is the error of a name that /etc/passwd, or of a group that /etc/group does not have.
type unknownUser string

func (u unknownUser) Error() string { return fmt.Sprintf("unknown user %q", string(u)) }

// lookupUser resolves a user in the container's files, by docker's rule: a name or bare uid found in /etc/passwd gets
// its group and, by its name, the groups of /etc/group; a bare uid that is not there gets group 0 and no others.
func lookupUser(u *userSpec) (*identity, error) {
	return lookupUserIn(u, "/etc/passwd", "/etc/group")
}

func lookupUserIn(u *userSpec, passwd, group string) (*identity, error) {
	id := &identity{Home: "/", Groups: []int{}}
	if u.UID != nil {
		id.UID = *u.UID
	}
	name, found := "", false
	err := scanColons(passwd, 7, func(f []string) bool {
		uid, gid := number(f[2]), number(f[3])
		if uid < 0 || gid < 0 || f[0] == "" {
			return true
		}
		if (u.Name != nil && f[0] == *u.Name) || (u.Name == nil && uid == *u.UID) {
			name, found = f[0], true
			id.UID, id.GID = uid, gid
			if f[5] != "" {
				id.Home = f[5]
			}
		}
		return !found
	})
	switch {
	case u.Name != nil && err != nil && !os.IsNotExist(err):
		return nil, fmt.Errorf("%s: %w", passwd, err)
	case u.Name != nil && !found:
		return nil, unknownUser(*u.Name)
	}
	if u.Group != nil {
		gid := -1
		scanColons(group, 4, func(f []string) bool {
			if f[0] == *u.Group {
				gid = number(f[2])
			}
			return gid < 0
		})
		if gid < 0 {
			return nil, unknownUser(u.text())
		}
		id.GID = gid
		return id, nil
	}
	if found && u.GID == nil {
		scanColons(group, 4, func(f []string) bool {
			gid := number(f[2])
			if gid >= 0 && slices.Contains(strings.Split(f[3], ","), name) && !slices.Contains(id.Groups, gid) {
				id.Groups = append(id.Groups, gid)
			}
			return len(id.Groups) < 65536
		})
	}
	if u.GID != nil {
		id.GID = *u.GID
	}
	if u.Groups != nil {
		id.Groups = append([]int{}, *u.Groups...)
	}
	return id, nil
}

// scanColons calls use with the fields of each line that has at least so many, until it returns false. The file may
// be reached over links (images build it so), but must be a regular one.
func scanColons(path string, fields int, use func([]string) bool) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("not a regular file")
	}
	lines := bufio.NewScanner(io.LimitReader(file, maxUsersFile))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if f := strings.Split(strings.TrimSpace(lines.Text()), ":"); len(f) >= fields && !use(f) {
			break
		}
	}
	return lines.Err()
}

// number parses a user or group number; -1 if it is none.
func number(text string) int {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 1<<32-1 {
		return -1
	}
	return int(n)
}

// credential is what the kernel needs to become id; nil when we are that user already, which needs no privilege.
func (id *identity) credential() *syscall.Credential {
	if id.UID == os.Geteuid() && id.GID == os.Getegid() && id.sameGroups() {
		return nil
	}
	credential := &syscall.Credential{Uid: uint32(id.UID), Gid: uint32(id.GID), Groups: []uint32{}}
	for _, gid := range id.Groups {
		credential.Groups = append(credential.Groups, uint32(gid))
	}
	return credential
}

// sameGroups: groups are not ours to change unless we are root; then a difference is no reason to fail.
func (id *identity) sameGroups() bool {
	if os.Geteuid() != 0 {
		return true
	}
	own, err := syscall.Getgroups()
	if err != nil {
		return false
	}
	own = slices.DeleteFunc(own, func(gid int) bool { return gid == id.GID })
	want := slices.DeleteFunc(slices.Clone(id.Groups), func(gid int) bool { return gid == id.GID })
	slices.Sort(own)
	slices.Sort(want)
	return slices.Equal(slices.Compact(own), slices.Compact(want))
}
