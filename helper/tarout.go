package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	maxListed     = 100  // entries of a list of skipped or changed things
	maxListedPath = 1024 // bytes of a path in it
	maxRoots      = 1024
	nameBatch     = 512 // names of a folder held at a time
)

// skippedList names what an archive left out: the first maxListed, and how many in all.
type skippedList struct {
	Skipped      []skippedEntry `json:"skipped"`
	SkippedCount int64          `json:"skippedCount"`
}

type skippedEntry struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (s *skippedList) add(path, reason string) {
	s.SkippedCount++
	if len(s.Skipped) < maxListed {
		s.Skipped = append(s.Skipped, skippedEntry{path[:min(len(path), maxListedPath)], reason})
	}
}

// packRequest is what `helper pack` reads from stdin.
type packRequest struct {
	Protocol     int        `json:"protocol"`
	Roots        []packRoot `json:"roots"`
	MaxBytes     int64      `json:"maxBytes"`
	MaxEntries   int64      `json:"maxEntries"`
	MaxFileBytes *int64     `json:"maxFileBytes"`
}

// packRoot is a path in the container and its name in the archive; "." puts a folder's contents at the top.
type packRoot struct {
	Path string `json:"path"`
	As   string `json:"as"`
}

type packTrailer struct {
	trailer
	skippedList
	Changed      []string `json:"changed"`
	ChangedCount int64    `json:"changedCount"`
	Truncated    bool     `json:"truncated"`
}

func (r *packRequest) validate() error {
	if err := checkProtocol(r.Protocol); err != nil {
		return err
	}
	if len(r.Roots) == 0 || len(r.Roots) > maxRoots || r.MaxBytes < 0 || r.MaxEntries < 0 {
		return errors.New("roots, maxBytes or maxEntries: out of range")
	}
	for _, root := range r.Roots {
		if _, err := splitPath(root.Path); err != nil {
			return err
		}
		if _, err := splitRelative(root.As); err != nil {
			return err
		}
	}
	return nil
}

// runPack writes the roots as one framed archive to stdout. What cannot be read is listed in the trailer.
func runPack([]string) error {
	body, err := readFrame(os.Stdin, maxRequest)
	if err != nil {
		return fmt.Errorf("the request: %w", unexpected(err))
	}
	request := &packRequest{}
	if err := decodeStrict(body, request); err != nil {
		return fmt.Errorf("the request: %w", err)
	}
	if err := request.validate(); err != nil {
		return fmt.Errorf("the request: %w", err)
	}
	growPipe(1)
	return pack(os.Stdout, request)
}

// packer walks folders and writes what it finds. It follows no link and opens nothing but folders and regular files.
type packer struct {
	request *packRequest
	archive *archiveWriter
	tar     *tar.Writer
	buffer  []byte
	bytes   int64
	trailer packTrailer
}

// errFull ends a walk: no more entries are allowed.
var errFull = errors.New("entry limit")

func pack(out io.Writer, request *packRequest) error {
	archive := newArchiveWriter(out)
	p := &packer{request: request, archive: archive, tar: tar.NewWriter(archive), buffer: make([]byte, sendChunk)}
	p.trailer.Skipped, p.trailer.Changed = []skippedEntry{}, []string{}
	for _, root := range request.Roots {
		err := p.root(root)
		if err == errFull {
			p.trailer.Truncated = true
			break
		}
		if err != nil {
			return err
		}
	}
	if err := p.tar.Close(); err != nil {
		return err
	}
	return archive.close(func(bytes int64, sha256 string) any {
		p.trailer.Bytes, p.trailer.SHA256 = bytes, sha256
		return p.trailer
	})
}

func (p *packer) root(root packRoot) error {
	as, _ := splitRelative(root.As)
	parts, _ := splitPath(root.Path)
	if len(parts) == 0 {
		return p.skip(root.Path, "special")
	}
	dir, base, err := openParent(root.Path, false)
	if err != nil {
		return p.skip(root.Path, reasonOf(err))
	}
	defer syscall.Close(dir)
	return p.entry(dir, base, root.Path, strings.Join(as, "/"), 0)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return "missing"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return "link"
	case errors.Is(err, errNotRegular):
		return "special"
	}
	return "unreadable"
}

// skip lists what is left out. It counts as an entry too, so that a walk over nothing but FIFOs ends.
func (p *packer) skip(path, reason string) error {
	p.trailer.add(path, reason)
	if p.trailer.Entries+p.trailer.SkippedCount >= p.request.MaxEntries+maxListed {
		return errFull
	}
	return nil
}

// entry packs name below dir as the archive's name as. Only a write error or errFull is an error.
func (p *packer) entry(dir int, name, path, as string, depth int) error {
	if p.trailer.Entries >= p.request.MaxEntries {
		return errFull
	}
	fd, err := openat(dir, name, oPath|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return p.skip(path, reasonOf(err))
	}
	var stat syscall.Stat_t
	err = syscall.Fstat(fd, &stat)
	syscall.Close(fd)
	if err != nil {
		return p.skip(path, "unreadable")
	}
	header := &tar.Header{
		Format: tar.FormatPAX, Name: as, Mode: int64(stat.Mode & 0o1777), Uid: int(stat.Uid), Gid: int(stat.Gid),
		ModTime: time.Unix(stat.Mtim.Sec, 0),
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return p.folder(dir, name, path, header, depth)
	case syscall.S_IFREG:
		return p.file(dir, name, path, header)
	case syscall.S_IFLNK:
		return p.symlink(dir, name, path, header)
	}
	return p.skip(path, "special")
}

func (p *packer) symlink(dir int, name, path string, header *tar.Header) error {
	target, err := readlinkat(dir, name)
	if err != nil {
		return p.skip(path, reasonOf(err))
	}
	header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, target, 0o777
	_, err = p.header(path, header)
	return err
}

// header writes an entry's header; ok is false if it is one that cannot be written and was skipped.
func (p *packer) header(path string, header *tar.Header) (ok bool, err error) {
	if header.Name == "" {
		return true, p.nameless(path, header)
	}
	err = p.tar.WriteHeader(header)
	if err != nil && p.archive.err == nil {
		return false, p.skip(path, "special") // a time or a name that tar cannot express
	}
	p.trailer.Entries++
	return err == nil, err
}

// nameless: a root that goes to the top has no entry of its own, so it must be a folder.
func (p *packer) nameless(path string, header *tar.Header) error {
	if header.Typeflag == tar.TypeDir {
		return nil
	}
	return p.skip(path, "special")
}

func (p *packer) folder(dir int, name, path string, header *tar.Header, depth int) error {
	if depth >= maxDepth || len(header.Name) > maxPath-256 {
		return p.skip(path, "tooDeep")
	}
	fd, err := openat(dir, name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return p.skip(path, reasonOf(err))
	}
	folder := os.NewFile(uintptr(fd), "folder")
	defer folder.Close()
	prefix := header.Name
	if prefix != "" {
		prefix += "/"
	}
	header.Typeflag = tar.TypeDir
	if header.Name != "" {
		header.Name = prefix
	}
	if ok, err := p.header(path, header); err != nil || !ok {
		return err
	}
	for {
		names, err := folder.Readdirnames(nameBatch)
		slices.Sort(names)
		for _, child := range names {
			if err := p.entry(fd, child, path+"/"+child, prefix+child, depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF || (err == nil && len(names) == 0) {
			return nil
		}
		if err != nil {
			return p.skip(path, "unreadable")
		}
	}
}

func (p *packer) file(dir int, name, path string, header *tar.Header) error {
	if header.Name == "" {
		return p.nameless(path, header)
	}
	file, size, err := openRegular(dir, name)
	if err != nil {
		return p.skip(path, reasonOf(err))
	}
	defer file.Close()
	if p.request.MaxFileBytes != nil && size > *p.request.MaxFileBytes {
		return p.skip(path, "tooLarge")
	}
	if size > p.request.MaxBytes-p.bytes {
		p.trailer.Truncated = true
		return p.skip(path, "limit") // smaller ones may still fit
	}
	header.Typeflag, header.Size = tar.TypeReg, size
	if ok, err := p.header(path, header); err != nil || !ok {
		return err
	}
	p.bytes += size
	return p.content(file, path, size)
}

// content writes exactly size bytes, what the header promised, and notes a file that has more or fewer by now.
func (p *packer) content(file *os.File, path string, size int64) error {
	changed := false
	for left := size; left > 0; {
		part := p.buffer[:min(left, int64(len(p.buffer)))]
		n := len(part)
		if !changed {
			var err error
			n, err = file.Read(part)
			changed = err != nil
		}
		if changed {
			n = len(part)
			clear(part)
		}
		if _, err := p.tar.Write(part[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if info, err := file.Stat(); changed || err != nil || info.Size() != size {
		p.trailer.ChangedCount++
		if len(p.trailer.Changed) < maxListed {
			p.trailer.Changed = append(p.trailer.Changed, path[:min(len(path), maxListedPath)])
		}
	}
	return nil
}

// unpackRequest is what `helper unpack` reads from stdin.
type unpackRequest struct {
	Protocol   int    `json:"protocol"`
	Path       string `json:"path"`
	FileMode   string `json:"fileMode"`
	MaxBytes   int64  `json:"maxBytes"`
	MaxEntries int64  `json:"maxEntries"`
}

// runUnpack takes a request and one framed archive and prints one line: what was unpacked, or why not.
func runUnpack([]string) error {
	syscall.Umask(0) // modes are what the archive says
	in := bufio.NewReaderSize(os.Stdin, sendChunk)
	result, err := unpackStdin(in)
	out := &emitter{}
	if fail := (*failure)(nil); errors.As(err, &fail) {
		out.final(struct {
			OK      bool   `json:"ok"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		}{false, fail.Reason, fail.Message})
	}
	out.final(struct {
		OK bool `json:"ok"`
		*unpackResult
	}{true, result})
	return nil
}

func unpackStdin(in *bufio.Reader) (*unpackResult, error) {
	body, err := readFrame(in, maxRequest)
	if err != nil {
		return nil, failed("Protocol", unexpected(err))
	}
	request := &unpackRequest{}
	if err := decodeStrict(body, request); err != nil {
		return nil, failed("Protocol", err)
	}
	options := &unpackOptions{request.Path, request.FileMode, request.MaxBytes, request.MaxEntries}
	if err := errors.Join(checkProtocol(request.Protocol), options.validate()); err != nil {
		return nil, failed("Protocol", err)
	}
	return unpack(in, options, "", func() {})
}
