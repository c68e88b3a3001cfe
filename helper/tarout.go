package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

// nameBatch is how many names of a folder are held at a time, on each level of a tree.
const nameBatch = 128

// packer walks folders and writes what it finds. It follows no link and opens nothing but folders and regular files.
type packer struct {
	request *packRequest
	archive *archiveWriter
	tar     *tar.Writer
	sink    *contentSink // into tar
	buffer  []byte
	scrub   *scrubber // nil: nothing is to be hidden
	except  []string  // where nothing is hidden
	bytes   int64
	trailer packTrailer
	at      *rootResult // of the root that is being packed
	exclude excludes    // likewise
	under   int         // bytes of a path that lead to its root, slash included
}

// errFull ends a walk: no more entries are allowed.
var errFull = errors.New("entry limit")

func pack(out io.Writer, request *packRequest) error {
	archive := newArchiveWriter(out)
	p := &packer{request: request, archive: archive, tar: tar.NewWriter(archive), buffer: make([]byte, sendChunk)}
	p.sink = &contentSink{tar: p.tar}
	p.trailer.Skipped, p.trailer.Changed, p.trailer.room = []skippedEntry{}, []string{}, newListRoom()
	p.scrubWith(request.Scrub, request.ScrubExcept)
	if err := p.all(); err != nil {
		return err
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
	p.at.SkippedCount++
	if p.at.Entries == 0 && reason == typeUnreadable {
		p.at.Type = reason // the root itself: nothing else comes before its entry
	}
	if p.trailer.Entries+p.trailer.SkippedCount >= p.request.MaxEntries+maxListed {
		return errFull
	}
	return nil
}

// entry packs name below dir as the archive's name as. Only a write error or errFull is an error.
func (p *packer) entry(dir int, name, path, as string, depth int) error {
	if depth > 0 && (p.isElsewhere(path) || p.exclude.below(path[p.under:])) {
		return nil
	}
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
	if depth == 0 && stat.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		return p.skip(path, "link") // a root leads nowhere else
	}
	header := &tar.Header{
		Format: tar.FormatPAX, Name: as, Mode: int64(stat.Mode & 0o1777), Uid: int(stat.Uid), Gid: int(stat.Gid),
		ModTime: time.Unix(stat.Mtim.Sec, 0),
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return p.folder(dir, name, path, header, depth)
	case syscall.S_IFREG:
		return p.file(dir, name, path, header, depth)
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
	err = p.tar.WriteHeader(header)
	if err != nil && p.archive.err == nil {
		return false, p.skip(path, "special") // a time or a name that tar cannot express
	}
	p.trailer.Entries++
	p.at.Entries++
	return err == nil, err
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
	header.Typeflag, header.Name = tar.TypeDir, prefix
	if prefix == "" {
		header.Name = "./" // the top has an entry too: it says whose the folder is
	}
	if ok, err := p.header(path, header); err != nil || !ok || (depth == 0 && p.exclude.all()) {
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

func (p *packer) file(dir int, name, path string, header *tar.Header, depth int) error {
	if header.Name == "" {
		return p.skip(path, "special") // the top is a folder
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
	p.at.Size += size
	p.sink.start(depth == 0)
	if err := p.content(file, path, size); err != nil {
		return err
	}
	if depth == 0 {
		p.at.SHA256 = p.sink.end()
	}
	return nil
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
		p.changed(path)
	}
	return nil
}

func (p *packer) changed(path string) {
	p.trailer.ChangedCount++
	p.at.ChangedCount++
	if len(p.trailer.Changed) < maxListed {
		if text, ok := p.trailer.room.take(path); ok {
			p.trailer.Changed = append(p.trailer.Changed, text)
		}
	}
}
