package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"strings"
	"syscall"
)

// maxRootPaths bounds what the roots of one request take in the trailer, as JSON.
const maxRootPaths = 256 << 10

// Types of a root. Those after the first two are reasons too: there is nothing of it in the archive.
const (
	typeFile       = "file"
	typeDirectory  = "directory"
	typeMissing    = "missing"
	typeLink       = "link"
	typeSpecial    = "special"
	typeUnreadable = "unreadable"
)

// rootResult is what the trailer says about one root.
type rootResult struct {
	Path         string  `json:"path"`
	Type         string  `json:"type"`
	Entries      int64   `json:"entries"` // with its own
	Size         int64   `json:"size"`    // of file contents
	SHA256       *string `json:"sha256"`  // of the content of a file, as it was sent
	SkippedCount int64   `json:"skippedCount"`
	ChangedCount int64   `json:"changedCount"`
}

// resolve makes the roots' paths absolute and plain. Without a working directory a relative one leads nowhere.
func (r *packRequest) resolve(currentDirectory func() (string, error)) error {
	total := 0
	for i := range r.Roots {
		root := &r.Roots[i]
		path := root.Path
		if !strings.HasPrefix(path, "/") {
			cwd, err := currentDirectory()
			if err != nil {
				continue
			}
			path = cwd + "/" + path
		}
		if parts, err := splitPath(path); err == nil {
			root.Path = "/" + strings.Join(parts, "/")
		}
		total += quotedLength(printable(root.Path))
	}
	if total > maxRootPaths {
		return errors.New("roots: their paths are too long together")
	}
	return nil
}

// all packs the roots. Of those that come after the last entry allowed the trailer says what they are.
func (p *packer) all() error {
	p.trailer.Roots = make([]rootResult, len(p.request.Roots))
	for i := range p.request.Roots {
		root, result := &p.request.Roots[i], &p.trailer.Roots[i]
		p.at, p.exclude, p.under = result, root.Exclude, len(root.Path)+1
		result.Path, result.Type = printable(root.Path), typeUnreadable
		switch err := p.root(root); err {
		case nil:
		case errFull:
			p.trailer.Truncated = true
		default:
			return err
		}
	}
	return nil
}

func (p *packer) root(root *packRoot) error {
	parts, err := splitPath(root.Path)
	if err != nil {
		return p.without(root.Path, typeMissing)
	}
	if len(parts) == 0 {
		return p.without(root.Path, typeSpecial)
	}
	dir, base, err := openParent(root.Path, false)
	if err != nil {
		return p.without(root.Path, reasonOf(err))
	}
	defer syscall.Close(dir)
	p.at.Type = typeOf(dir, base)
	if p.at.Type != typeFile && p.at.Type != typeDirectory {
		return p.without(root.Path, p.at.Type)
	}
	if p.trailer.Truncated && p.trailer.Entries >= p.request.MaxEntries {
		return errFull
	}
	as, _ := splitRelative(root.As)
	return p.entry(dir, base, root.Path, strings.Join(as, "/"), 0)
}

// without: there is nothing of this root, for a reason that is its type.
func (p *packer) without(path, reason string) error {
	p.at.Type = reason
	return p.skip(path, reason)
}

// typeOf says what name is; a link is not followed.
func typeOf(dir int, name string) string {
	fd, err := openat(dir, name, oPath|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return reasonOf(err)
	}
	defer syscall.Close(fd)
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil {
		return typeUnreadable
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return typeFile
	case syscall.S_IFDIR:
		return typeDirectory
	case syscall.S_IFLNK:
		return typeLink
	}
	return typeSpecial
}

// contentSink takes the contents of files, after anything was hidden in them, and sums up one that is a root itself.
type contentSink struct {
	tar *tar.Writer
	sum hash.Hash // nil: nobody asks
}

func (c *contentSink) Write(data []byte) (int, error) {
	if c.sum != nil {
		c.sum.Write(data)
	}
	return c.tar.Write(data)
}

func (c *contentSink) Flush() error { return c.tar.Flush() }

// start begins the sum of a file; without asked there is none.
func (c *contentSink) start(asked bool) {
	c.sum = nil
	if asked {
		c.sum = sha256.New()
	}
}

// end is the sum, in hex; nil if nobody asked.
func (c *contentSink) end() *string {
	if c.sum == nil {
		return nil
	}
	text := hex.EncodeToString(c.sum.Sum(nil))
	return &text
}
