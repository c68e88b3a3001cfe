package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"strings"
	"syscall"
)

// extractor unpacks one archive.
type extractor struct {
	options    *unpackOptions
	progress   func()
	root       int // owned by the extractor
	asRoot     bool
	parent     int    // open folder of the last entry, or -1: entries of one folder follow each other
	parentName string // its name
	entries    int64
	bytes      int64
	buffer     []byte
	seed       maphash.Seed
	files      map[uint64]struct{} // hashes of the names of unpacked files: targets of hard links
	closed     []closedFolder
	skipped    skippedList

	// Of an artifact only.
	place  string       // where it is put
	open   []openFolder // those that the last entry is in
	top    *tar.Header  // of the artifact's own folder
	owners int64        // that could not be kept
}

// closedFolder gets a mode at the end that would keep us from filling it.
type closedFolder struct {
	name string
	mode uint32
}

func newExtractor(options *unpackOptions, progress func()) *extractor {
	return &extractor{
		options: options, progress: progress, root: -1, parent: -1, asRoot: os.Geteuid() == 0,
		buffer: make([]byte, sendChunk), seed: maphash.MakeSeed(), files: map[uint64]struct{}{},
		skipped: skippedList{Skipped: []skippedEntry{}},
	}
}

func (x *extractor) close() {
	x.forgetParent()
	if x.root >= 0 {
		syscall.Close(x.root)
	}
}

// nextEntry gives the next member. A PAX global header is none: it has defaults for those that follow.
func nextEntry(archive *tar.Reader) (*tar.Header, error) {
	for {
		header, err := archive.Next()
		if err != nil || header.Typeflag != tar.TypeXGlobalHeader {
			return header, err
		}
	}
}

// atEnd: the end of an archive is no error.
func atEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

func (x *extractor) all(archive *tar.Reader) error {
	for {
		header, err := nextEntry(archive)
		if err == io.EOF {
			return x.end()
		}
		if err != nil {
			return err
		}
		if x.entries++; x.entries > x.options.MaxEntries {
			return fmt.Errorf("more than %d entries", x.options.MaxEntries)
		}
		if err := x.entry(header, archive); err != nil {
			return fmt.Errorf("%.200q: %w", header.Name, err)
		}
	}
}

// end gives folders what would have been in the way, or lost, before.
func (x *extractor) end() error {
	if x.options.Restore {
		return errors.Join(x.leave(""), x.endRoot())
	}
	return x.closeFolders()
}

func (x *extractor) entry(h *tar.Header, content io.Reader) error {
	parts, err := splitRelative(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return x.itself(h)
	}
	name, base := strings.Join(parts, "/"), parts[len(parts)-1]
	if err := x.leave(name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, tar.TypeSymlink, tar.TypeLink:
	default:
		x.skipped.add(name, "special")
		return nil
	}
	if err := x.enterParent(parts[:len(parts)-1]); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.folder(h, name, base)
	case tar.TypeSymlink:
		return x.symlink(h, name, base)
	case tar.TypeLink:
		return x.hardLink(h, name, base)
	}
	return x.file(h, name, base, content)
}

// itself is the entry of the folder that is unpacked into. What it is like is the request's business, but for an
// artifact's.
func (x *extractor) itself(h *tar.Header) error {
	if !x.options.Restore {
		return nil
	}
	if h.Typeflag != tar.TypeDir {
		return errors.New("the artifact is no folder")
	}
	x.top = h
	return nil
}

// enterParent makes x.parent the folder of the entry.
func (x *extractor) enterParent(parts []string) error {
	name := strings.Join(parts, "/")
	if x.parent >= 0 && name == x.parentName {
		return nil
	}
	x.forgetParent()
	fd, err := openat(x.root, ".", oPath|syscall.O_DIRECTORY, 0)
	for _, part := range parts {
		if err != nil {
			return err
		}
		var next int
		var created bool
		next, created, err = enter(fd, part, true)
		syscall.Close(fd)
		fd = next
		if err == nil && created && x.options.Owner != nil {
			err = ownFolder(fd, ".", 0o755, x.options.Owner)
		}
	}
	if err == nil {
		x.parent, x.parentName = fd, name
	}
	return err
}

func (x *extractor) forgetParent() {
	if x.parent >= 0 {
		syscall.Close(x.parent)
		x.parent = -1
	}
}

func (x *extractor) file(h *tar.Header, name, base string, content io.Reader) error {
	if h.Size > x.options.MaxBytes-x.bytes {
		return fmt.Errorf("more than %d bytes of files", x.options.MaxBytes)
	}
	x.bytes += h.Size
	mode := x.fileMode(h, name)
	fd, replaced, err := createFile(x.parent, base, syscall.O_WRONLY, mode&0o777)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if !x.options.Restore {
		x.files[maphash.String(x.seed, name)] = struct{}{}
	}
	if err := writeSparse(fd, content, x.buffer, x.progress); err != nil {
		return err
	}
	if replaced {
		defer x.forgetParent() // what was there may have been a folder that we have open
	}
	return x.finish(fd, h, mode)
}

func (x *extractor) fileMode(h *tar.Header, name string) uint32 {
	mode := uint32(h.Mode) & 0o1777
	if x.options.Restore {
		return mode & 0o777
	}
	if x.options.FileMode == modeKeep {
		return mode
	}
	if name == "test.sh" {
		return 0o755
	}
	return readableMode(mode &^ 0o1000)
}

// readableMode is chmod a+rX for a file.
func readableMode(mode uint32) uint32 {
	if mode&0o111 != 0 {
		mode |= 0o111
	}
	return mode | 0o444
}

// finish gives owner, mode and time to a new file or folder.
func (x *extractor) finish(fd int, h *tar.Header, mode uint32) error {
	if x.options.FileMode == modeNormalise {
		return own(fd, mode, x.options.Owner)
	}
	if x.options.Restore {
		return x.keep(fd, h, mode)
	}
	uid, gid := os.Geteuid(), os.Getegid() // only root may give files away
	if x.asRoot {
		uid, gid = h.Uid, h.Gid
	}
	if err := setOwner(fd, mode, uid, gid); err != nil {
		return err
	}
	setTimes(fd, h.ModTime.Unix()) // a file system that cannot keep this time keeps another
	return nil
}

func (x *extractor) folder(h *tar.Header, name, base string) error {
	fd, _, err := enter(x.parent, base, true)
	if err != nil {
		return err
	}
	syscall.Close(fd)
	mode := uint32(h.Mode) & 0o1777
	if x.options.FileMode == modeNormalise {
		mode = mode&^0o1000 | 0o555
	}
	closed := mode&0o700 != 0o700
	if x.options.Restore {
		x.open = append(x.open, openFolder{name, mode, closed, h.ModTime.Unix()})
	} else if closed {
		x.closed = append(x.closed, closedFolder{name, mode})
	}
	if closed {
		mode |= 0o700
	}
	fd, err = openat(x.parent, base, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return x.finish(fd, h, mode)
}

// closeFolders takes our own rights away from folders that shall not have them, the deepest first.
func (x *extractor) closeFolders() error {
	for i := len(x.closed) - 1; i >= 0; i-- {
		parts, err := splitRelative(x.closed[i].name)
		if err != nil {
			return err
		}
		dir, err := walk(x.root, parts, false)
		if err != nil {
			continue // replaced by a later entry, or by somebody else
		}
		fd, err := openat(dir, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		syscall.Close(dir)
		if err != nil {
			return err
		}
		err = syscall.Fchmod(fd, x.closed[i].mode)
		syscall.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}
