package main

import (
	"bufio"
	"errors"
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
	Name   string // in /etc/passwd; empty for a number that is not there
}

// login gives the variables that a login sets for id; without a name only HOME, as docker does it.
func (id *identity) login() map[string]string {
	variables := map[string]string{"HOME": id.Home}
	if id.Name != "" {
		variables["USER"], variables["LOGNAME"] = id.Name, id.Name
	}
	return variables
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
			id.UID, id.GID, id.Name = uid, gid, name
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

// credential is what the kernel needs to become id; nil when we are that user already, which needs no privilege. Groups
// are not ours to change unless we are root: then a difference is no reason to fail.
func (id *identity) credential() *syscall.Credential {
	if id.UID == os.Geteuid() && (os.Geteuid() != 0 || (id.GID == os.Getegid() && id.sameGroups())) {
		return nil
	}
	credential := &syscall.Credential{Uid: uint32(id.UID), Gid: uint32(id.GID), Groups: []uint32{}}
	for _, gid := range id.Groups {
		credential.Groups = append(credential.Groups, uint32(gid))
	}
	return credential
}

// forbiddenUser is the error of a user that exists and that no process here can become.
type forbiddenUser string

func (f forbiddenUser) Error() string { return string(f) }

// reachable tells whether a process of ours can become id: without root only whoever we are, in a user namespace only
// those whom it has numbers for.
func (id *identity) reachable() error {
	if euid := os.Geteuid(); euid != 0 {
		if id.UID == euid {
			return nil
		}
		return forbiddenUser(fmt.Sprintf("the sandbox runs as user %d and cannot become user %d", euid, id.UID))
	}
	if !mapped("/proc/self/uid_map", id.UID) {
		return forbiddenUser(fmt.Sprintf("user %d is not in the sandbox's user namespace", id.UID))
	}
	for _, gid := range append([]int{id.GID}, id.Groups...) {
		if !mapped("/proc/self/gid_map", gid) {
			return forbiddenUser(fmt.Sprintf("group %d is not in the sandbox's user namespace", gid))
		}
	}
	return nil
}

// mapped tells whether a map of the kernel has this number. What cannot be read forbids nothing: the kernel decides.
func mapped(file string, number int) bool {
	ranges, err := readMap(file)
	if err != nil {
		return true
	}
	for _, r := range ranges {
		if number >= r[0] && number-r[0] < r[2] {
			return true
		}
	}
	return false
}

// readMap reads /proc/PID/uid_map or gid_map: first number inside, first one outside, how many.
func readMap(file string) ([][3]int, error) {
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var ranges [][3]int
	for line := range strings.Lines(string(body)) {
		var r [3]int
		if _, err := fmt.Sscan(line, &r[0], &r[1], &r[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// allNumbers is the length of the one range of the first user namespace, which maps everybody to himself.
const allNumbers = 1<<32 - 1

// ownNamespace tells why these ranges are not those of a user namespace of the pod's own; nil if they are.
func ownNamespace(ranges [][3]int) error {
	for _, r := range ranges {
		if r[0] == 0 && r[1] == 0 {
			return errors.New("root of the sandbox is root of its node: it has no user namespace of its own")
		}
		if r[2] == allNumbers {
			return errors.New("the sandbox's users are all users of its node: it has no user namespace of its own")
		}
	}
	if len(ranges) == 0 {
		return errors.New("the sandbox's user namespace has no users")
	}
	return nil
}

func (id *identity) sameGroups() bool {
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
