package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// nameBatch is how many names of a folder are held at a time.
const nameBatch = 512

// packer walks folders and writes what it finds. It follows no link and opens nothing but folders and regular files.
type packer struct {
	request *packRequest
	archive *archiveWriter
	tar     *tar.Writer
	buffer  []byte
	scrub   *scrubber // nil: nothing is to be hidden
	except  []string  // where nothing is hidden
	bytes   int64
	trailer packTrailer
}

// errFull ends a walk: no more entries are allowed.
var errFull = errors.New("entry limit")

func pack(out io.Writer, request *packRequest) error {
	archive := newArchiveWriter(out)
	p := &packer{request: request, archive: archive, tar: tar.NewWriter(archive), buffer: make([]byte, sendChunk)}
	p.trailer.Skipped, p.trailer.Changed = []skippedEntry{}, []string{}
	p.scrubWith(request.Scrub, request.ScrubExcept)
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
		if p.scrub != nil {
			p.trailer.Scrubbed = p.scrub.count
		}
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

// isElsewhere: the path is a root that is to be in its own place only.
func (p *packer) isElsewhere(path string) bool {
	return slices.ContainsFunc(p.request.Roots, func(root packRoot) bool { return root.Only && root.Path == path })
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
	if depth > 0 && p.isElsewhere(path) {
		return nil
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
	changed, out := false, p.contentOf(path)
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
		if _, err := out.Write(part[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if info, err := file.Stat(); changed || err != nil || info.Size() != size {
		p.trailer.ChangedCount++
		if len(p.trailer.Changed) < maxListed {
			p.trailer.Changed = append(p.trailer.Changed, path[:min(len(path), maxListedPath)])
		}
	}
	return nil
}
