package main

import (
	"archive/tar"
	"errors"
	"math"
	"os"
	"path"
	"strings"
	"syscall"
)

// openFolder is one that the archive is in: it gets its time, and a mode that would keep us out, when it is left. There
// are as many as a path has folders, however many the archive has.
type openFolder struct {
	name   string
	mode   uint32
	closed bool // the mode is still to be set
	time   int64
}

// leave ends the folders in which an entry of this name is not.
func (x *extractor) leave(name string) error {
	for len(x.open) > 0 {
		last := x.open[len(x.open)-1]
		if strings.HasPrefix(name, last.name+"/") {
			return nil
		}
		x.open = x.open[:len(x.open)-1]
		if err := x.endFolder(last); err != nil {
			return err
		}
	}
	return nil
}

func (x *extractor) endFolder(folder openFolder) error {
	parts, err := splitRelative(folder.name)
	if err != nil {
		return err
	}
	dir, err := walk(x.root, parts, false)
	if err != nil {
		return nil // replaced by a later entry
	}
	defer syscall.Close(dir)
	fd, err := openat(dir, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil // closed by an entry of the same name
	}
	defer syscall.Close(fd)
	if folder.closed {
		if err := syscall.Fchmod(fd, folder.mode); err != nil {
			return err
		}
	}
	setTimes(fd, folder.time) // a file system that cannot keep this time keeps another
	return nil
}

// endRoot gives the artifact's folder what its own entry says, if it had one.
func (x *extractor) endRoot() error {
	if x.top == nil {
		return nil
	}
	fd, err := openat(x.root, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return x.keep(fd, x.top, uint32(x.top.Mode)&0o1777)
}

// keep gives mode, owner and time as the archive has them. An owner that cannot be had here is ours, and counted.
func (x *extractor) keep(fd int, h *tar.Header, mode uint32) error {
	err := errOwner
	if possible(h) {
		err = setOwner(fd, mode, h.Uid, h.Gid)
	}
	if isOwnerError(err) {
		x.owners++
		err = syscall.Fchmod(fd, mode)
	}
	// The mode of a volume's root may be somebody else's to give.
	if err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	setTimes(fd, h.ModTime.Unix())
	return nil
}

// keepLink is keep for a link, which has no mode.
func (x *extractor) keepLink(h *tar.Header, base string) error {
	err := errOwner
	if h.Uid == os.Geteuid() && h.Gid == os.Getegid() {
		err = nil
	} else if possible(h) {
		err = syscall.Fchownat(x.parent, base, h.Uid, h.Gid, atNoFollow)
	}
	if isOwnerError(err) {
		x.owners++
		err = nil
	}
	setLinkTimes(x.parent, base, h.ModTime.Unix())
	return err
}

// errOwner: a number that no user has.
var errOwner = errors.New("no user has this number")

func possible(h *tar.Header) bool {
	return h.Uid >= 0 && h.Gid >= 0 && int64(h.Uid) < math.MaxUint32 && int64(h.Gid) < math.MaxUint32
}

// isOwnerError: we are not allowed to give files away, or the number is none in our user namespace.
func isOwnerError(err error) bool {
	return errors.Is(err, errOwner) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL)
}

// linkStays: a link of an artifact may name its own place too, as an absolute path.
func (x *extractor) linkStays(name, target string) bool {
	if rest, ok := strings.CutPrefix(target, x.place+"/"); x.options.Restore && ok {
		target, name = rest, "link" // counted from the artifact's own folder
	}
	return staysInside(path.Dir(name), target)
}
