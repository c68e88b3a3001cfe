package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// Names of links.
const (
	linksReplace = "replace" // a link on the way gives way to a folder: somebody may have planted it
	linksFollow  = "follow"  // a link on the way is the image's: nothing else has run yet
)

// maxLinks on one path is the kernel's own limit.
const maxLinks = 40

// follower walks a path as the kernel would, from descriptor to descriptor, and makes the folders that are missing,
// also behind a link that leads nowhere yet. It removes nothing: what is no folder is the image's, and an error.
type follower struct {
	fd      int                                 // the folder reached
	at      string                              // its path, for people
	left    []string                            // components to go
	links   int                                 // followed so far
	trusted bool                                // only links of root's, or of our own, are followed
	make    bool                                // what is missing
	created bool                                // the folder reached was made here
	regular bool                                // the end is a regular file: only without make, where it is no error
	check   func(where string, link bool) error // of each step, before it is taken; nil: none
}

// followPath opens the folder at an absolute path. created: it was not there; it is 0755 and ours then.
func followPath(name string) (fd int, created bool, err error) { return follow(name, false) }

// followTrusted is followPath in a sandbox in which others have worked: a link that is not root's, and not ours, is one
// that anybody may have put there, and an error.
func followTrusted(name string) (fd int, created bool, err error) { return follow(name, true) }

func follow(name string, trusted bool) (fd int, created bool, err error) {
	parts, err := splitPath(name)
	if err != nil {
		return -1, false, err
	}
	f := &follower{left: parts, trusted: trusted, make: true}
	if err := f.walk(); err != nil {
		return -1, false, err
	}
	return f.fd, f.created, nil
}

// followsToRegular tells whether a path leads to a regular file, along links of root's or ours.
func followsToRegular(name string) bool {
	parts, err := splitPath(name)
	if err != nil {
		return false
	}
	f := &follower{left: parts, trusted: true}
	if f.walk() != nil {
		return false
	}
	syscall.Close(f.fd)
	return f.regular
}

// whereLeads is the path of the same thing without a link on the way, as far as there is anything.
func whereLeads(name string) string {
	parts, err := splitPath(name)
	if err != nil {
		return name
	}
	f := &follower{left: parts}
	if f.walk() == nil {
		syscall.Close(f.fd)
	}
	return path.Join(append([]string{f.at}, f.left...)...)
}

// walk goes from the root of the container to the end. On an error fd is closed, and left has what was not reached.
func (f *follower) walk() error {
	root, err := openRoot()
	if err != nil {
		return err
	}
	f.fd, f.at = root, "/"
	for len(f.left) > 0 {
		next := f.left[0]
		f.left = f.left[1:]
		if err := f.step(next); err != nil {
			syscall.Close(f.fd)
			f.left = append([]string{next}, f.left...)
			return err
		}
	}
	return nil
}

// step goes on to name, which may be ".." in the target of a link.
func (f *follower) step(name string) error {
	where := path.Join(f.at, name)
	f.created = false
	if f.check != nil {
		if err := f.check(where, false); err != nil {
			return err
		}
	}
	for range maxAttempts {
		fd, err := openat(f.fd, name, oPath|syscall.O_NOFOLLOW, 0)
		if err == nil {
			return f.take(fd, where)
		}
		if err != syscall.ENOENT || !f.make {
			return fmt.Errorf("%q: %w", where, err)
		}
		err = mkdirat(f.fd, name, 0o755)
		if err != nil && err != syscall.EEXIST {
			return fmt.Errorf("creating %q: %w", where, err)
		}
		f.created = err == nil
	}
	return fmt.Errorf("%q: %w", where, errKeepsChanging)
}

// take makes fd the folder reached, or follows it if it is a link. What was opened is what counts, not its name.
func (f *follower) take(fd int, where string) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		syscall.Close(fd)
		return fmt.Errorf("%q: %w", where, err)
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		f.move(fd, where)
		return nil
	case syscall.S_IFLNK:
		if f.trusted && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
			syscall.Close(fd)
			return fmt.Errorf("%q is a link of user %d, which is not followed", where, stat.Uid)
		}
		if f.check != nil {
			if err := f.check(where, true); err != nil {
				syscall.Close(fd)
				return err
			}
		}
		target, err := readlinkat(fd, "")
		syscall.Close(fd)
		if err != nil {
			return fmt.Errorf("%q: %w", where, err)
		}
		return f.follow(target, where)
	case syscall.S_IFREG:
		if !f.make && len(f.left) == 0 {
			f.move(fd, where)
			f.regular = true
			return nil
		}
	}
	syscall.Close(fd)
	return fmt.Errorf("%q is not a folder, and is left as it is", where)
}

func (f *follower) move(fd int, where string) {
	syscall.Close(f.fd)
	f.fd, f.at = fd, where
}

// follow puts the components of a link's target in front of what is left. An absolute one counts from the root of the
// container, which is ours; the kernel lets no ".." out of it.
func (f *follower) follow(target, where string) error {
	if f.links++; f.links > maxLinks {
		return fmt.Errorf("%q: %w", where, syscall.ELOOP)
	}
	if strings.HasPrefix(target, "/") {
		root, err := openRoot()
		if err != nil {
			return err
		}
		f.move(root, "/")
	}
	var parts []string
	for part := range strings.SplitSeq(target, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	f.left = append(parts, f.left...)
	return nil
}
