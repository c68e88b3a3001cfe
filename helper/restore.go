package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"
)

// guarded are the folders of the contract, of the kernel and of ours: no artifact is put there, above them or below.
var guarded = []string{"/tests", "/logs/verifier", "/proc", "/sys", "/dev", "/.taskfold"}

// restorer puts artifacts at their places in a sandbox in which nothing untrusted has run: its image is trusted, the
// archives are not. Links of the image are followed on the way to a place. Nothing that an artifact brought is.
type restorer struct {
	guarded  []string // and where the image's links lead from there
	restored []string // places of this phase, without links on the way
	room     *listRoom
	progress func()
}

func newRestorer(progress func()) *restorer {
	r := &restorer{guarded: slices.Clone(guarded), room: newListRoom(), progress: progress}
	for _, each := range guarded {
		r.guarded = append(r.guarded, whereLeads(each))
	}
	return r
}

// restoreResult is an unpackResult and the owners that could not be kept.
type restoreResult struct {
	unpackResult
	Owners int64 `json:"owners"`
}

// restore takes one archive and puts what it holds at o.Path. What was there is gone.
func (r *restorer) restore(src *bufio.Reader, o *operation, digest string) (*restoreResult, error) {
	dir, base, at, err := r.place(o.Path)
	if err != nil {
		return nil, failed("Prepare", fmt.Errorf("%s: %w", o.Path, err))
	}
	defer syscall.Close(dir)
	r.restored = append(r.restored, at)
	x, err := r.empty(dir, base, o)
	if err != nil {
		return nil, failed("Prepare", fmt.Errorf("%s: %w", o.Path, err))
	}
	defer x.close()
	read := x.all
	if o.Type == typeFile {
		read = func(archive *tar.Reader) error { return x.only(archive, base) }
	}
	result, err := x.take(src, digest, read)
	if fail := (*failure)(nil); errors.As(err, &fail) {
		return nil, &failure{fail.Reason, fmt.Sprintf("%s: %s", o.Path, fail.Message)}
	}
	if err != nil {
		return nil, err
	}
	return &restoreResult{*result, x.owners}, nil
}

// place walks to the folder above a path, along links of the image, and makes what is missing. at is where it is.
func (r *restorer) place(name string) (dir int, base, at string, err error) {
	parts, err := splitPath(name)
	if err != nil {
		return -1, "", "", err
	}
	if len(parts) == 0 {
		return -1, "", "", errors.New("the root folder cannot be restored")
	}
	if err := r.allowed("/" + strings.Join(parts, "/")); err != nil {
		return -1, "", "", err
	}
	last := len(parts) - 1
	f := &follower{left: parts[:last:last], trusted: true, make: true, check: r.check}
	if err := f.walk(); err != nil {
		return -1, "", "", err
	}
	at = path.Join(f.at, parts[last])
	if err := r.allowed(at); err != nil {
		syscall.Close(f.fd)
		return -1, "", "", err
	}
	return f.fd, parts[last], at, nil
}

// check looks at each step of a walk, before anything is opened or made there.
func (r *restorer) check(where string, link bool) error {
	for _, each := range r.guarded {
		if within(where, each) {
			return fmt.Errorf("it leads to %s, where nothing is restored", where)
		}
	}
	for _, each := range r.restored {
		if link && within(where, each) {
			return fmt.Errorf("%q is a link that was restored, and is not followed", where)
		}
	}
	return nil
}

// allowed refuses a place that the verifier's files, the kernel or another artifact has, or that lies above one.
func (r *restorer) allowed(at string) error {
	for _, each := range r.guarded {
		if within(at, each) || within(each, at) {
			return fmt.Errorf("%s is not a place for an artifact: %s is there", at, each)
		}
	}
	for _, each := range r.restored {
		if within(each, at) {
			return fmt.Errorf("%s has been restored already, and would be lost", each)
		}
	}
	return nil
}

// within: name is at top or below it.
func within(name, top string) bool {
	rest, below := strings.CutPrefix(name, top)
	return below && (rest == "" || rest[0] == '/')
}

// empty makes way at the place and gives an extractor for it: a folder is there and empty then, a file gone.
func (r *restorer) empty(dir int, base string, o *operation) (*extractor, error) {
	options := &unpackOptions{FileMode: modeKeep, MaxBytes: o.MaxBytes, MaxEntries: o.MaxEntries, Restore: true}
	x := newExtractor(options, r.progress)
	parts, _ := splitPath(o.Path)
	x.place, x.skipped.room = "/"+strings.Join(parts, "/"), r.room
	if o.Type == typeFile {
		if err := removeTree(dir, base, r.progress); err != nil {
			return nil, err
		}
		var err error
		x.root, err = openat(dir, ".", oPath|syscall.O_DIRECTORY, 0)
		return x, err
	}
	if _, err := resetBelow(dir, base, nil, r.progress); err != nil {
		return nil, err
	}
	var err error
	x.root, _, err = enter(dir, base, false)
	return x, err
}

// only takes an archive of one regular file, whatever its name there, as base.
func (x *extractor) only(archive *tar.Reader, base string) error {
	h, err := nextEntry(archive)
	if err == io.EOF {
		return errors.New("the archive of a file is empty")
	}
	if err != nil {
		return err
	}
	if x.entries++; x.entries > x.options.MaxEntries {
		return fmt.Errorf("more than %d entries", x.options.MaxEntries)
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse && h.Typeflag != tar.TypeCont {
		return fmt.Errorf("%.200q is no regular file", h.Name)
	}
	if err := x.enterParent(nil); err != nil {
		return err
	}
	if err := x.file(h, base, base, archive); err != nil {
		return err
	}
	switch _, err := nextEntry(archive); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("the archive of a file has more than one member")
	default:
		return err
	}
}
