package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Paths in the container are walked component by component from a directory descriptor, never following a link:
// whoever works in the container may swap any component at any time, and a descriptor cannot be swapped.

const (
	maxPath     = 4096 // bytes; the kernel's own limit
	maxDepth    = 256  // components; deeper trees exist only to hurt
	maxAttempts = 16   // per component, against somebody who puts things in the way again and again
)

var errKeepsChanging = errors.New("somebody keeps changing it")

// splitPath gives the components of an absolute path; ".." is refused, "." and empty ones are dropped.
func splitPath(path string) ([]string, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("%.100q is not an absolute path", path)
	}
	return splitRelative(strings.TrimLeft(path, "/"))
}

// splitRelative gives the components of a path that must stay below its folder; none for the folder itself.
func splitRelative(path string) ([]string, error) {
	switch {
	case len(path) >= maxPath:
		return nil, fmt.Errorf("%.100q… is longer than %d bytes", path, maxPath-1)
	case strings.HasPrefix(path, "/"):
		return nil, fmt.Errorf("%.100q is absolute", path)
	case strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("%.100q has a NUL byte", path)
	}
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			return nil, fmt.Errorf("%.100q has a \"..\"", path)
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > maxDepth {
		return nil, fmt.Errorf("%.100q… is deeper than %d folders", path, maxDepth)
	}
	return parts, nil
}

// openRoot opens "/" as the start of a walk.
func openRoot() (int, error) { return openat(-1, "/", oPath|syscall.O_DIRECTORY, 0) }

// enter opens the directory name below dir. With replace, whatever else stands there gives way to a new directory
// (0755, ours); without, it is an error: ENOENT, or ENOTDIR for a link or a file.
func enter(dir int, name string, replace bool) (fd int, created bool, err error) {
	for range maxAttempts {
		fd, err = openat(dir, name, oPath|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
		if err == nil || !replace {
			return fd, created, err
		}
		switch err {
		case syscall.ENOENT:
		case syscall.ENOTDIR, syscall.ELOOP:
			if err = unlinkat(dir, name, 0); err != nil && err != syscall.ENOENT {
				return -1, false, fmt.Errorf("replacing %q: %w", name, err)
			}
		default:
			return -1, false, fmt.Errorf("%q: %w", name, err)
		}
		err = mkdirat(dir, name, 0o755)
		if err != nil && err != syscall.EEXIST {
			return -1, false, fmt.Errorf("creating %q: %w", name, err)
		}
		created = err == nil
	}
	return -1, false, fmt.Errorf("%q: %w", name, errKeepsChanging)
}

// walk enters parts one after the other from dir, which stays open, and returns a descriptor of the last.
func walk(dir int, parts []string, replace bool) (int, error) {
	fd, err := openat(dir, ".", oPath|syscall.O_DIRECTORY, 0)
	for _, part := range parts {
		if err != nil {
			return -1, err
		}
		var next int
		next, _, err = enter(fd, part, replace)
		syscall.Close(fd)
		fd = next
	}
	return fd, err
}

// openParent walks to the parent of an absolute path and gives the last component, which is not looked at.
func openParent(path string, replace bool) (dir int, base string, err error) {
	parts, err := splitPath(path)
	if err != nil {
		return -1, "", err
	}
	if len(parts) == 0 {
		return -1, "", errors.New("the root folder cannot be used for this")
	}
	root, err := openRoot()
	if err != nil {
		return -1, "", err
	}
	defer syscall.Close(root)
	last := len(parts) - 1
	dir, err = walk(root, parts[:last], replace)
	return dir, parts[last], err
}

// replacePath opens the folder at an absolute path; whatever is in its way gives way.
func replacePath(path string) (fd int, created bool, err error) {
	dir, base, err := openParent(path, true)
	if err != nil {
		return -1, false, err
	}
	defer syscall.Close(dir)
	return enter(dir, base, true)
}

// readable turns a walked directory into a descriptor that can be listed.
func readable(dir int) (*os.File, error) {
	fd, err := openat(dir, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "folder"), nil
}

// place runs create until it finds nothing in its way, removing what is there. replaced: something was.
func place(dir int, name string, create func() error) (replaced bool, err error) {
	for range maxAttempts {
		if err = create(); err != syscall.EEXIST {
			return replaced, err
		}
		if err = removeTree(dir, name, func() {}); err != nil {
			return true, err
		}
		replaced = true
	}
	return replaced, fmt.Errorf("%q: %w", name, errKeepsChanging)
}

// createFile makes a new regular file in place of whatever has the name. Always a new one: a file that was there
// may be held open, or be linked elsewhere, by whoever put it there. The umask applies to mode.
func createFile(dir int, name string, flags int, mode uint32) (fd int, replaced bool, err error) {
	replaced, err = place(dir, name, func() error {
		fd, err = openat(dir, name, flags|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW, mode)
		return err
	})
	return fd, replaced, err
}

// createPath is createFile for an absolute path, whose parents are made if need be. The file gets mode and owner.
func createPath(path string, flags int, mode uint32, owner *identity) (*os.File, error) {
	dir, base, err := openParent(path, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer syscall.Close(dir)
	fd, _, err := createFile(dir, base, flags, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	if err := own(fd, mode, owner); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// own gives an open file owner (nil: root, where we are root) and mode, in this order: chown clears mode bits.
func own(fd int, mode uint32, owner *identity) error {
	if owner != nil && (os.Geteuid() == 0 || owner.UID != os.Geteuid()) {
		return setOwner(fd, mode, owner.UID, owner.GID)
	}
	if os.Geteuid() == 0 {
		return setOwner(fd, mode, 0, 0)
	}
	return syscall.Fchmod(fd, mode)
}

// setOwner changes only what differs: on a journaling file system a change costs far more than the look.
func setOwner(fd int, mode uint32, uid, gid int) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return err
	}
	if int(stat.Uid) != uid || int(stat.Gid) != gid {
		if err := syscall.Fchown(fd, uid, gid); err != nil {
			return fmt.Errorf("owner %d:%d: %w", uid, gid, err)
		}
	} else if stat.Mode&0o7777 == mode {
		return nil
	}
	return syscall.Fchmod(fd, mode)
}
