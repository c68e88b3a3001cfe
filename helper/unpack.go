package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Names of fileMode.
const (
	modeNormalise = "normalise" // root's, a+rX, as the contract wants files in a sandbox (decision C26)
	modeKeep      = "keep"      // owners, modes and times of the archive
)

// unpackOptions bound an archive: MaxBytes is about the contents of its files, holes included.
type unpackOptions struct {
	Path       string
	FileMode   string
	MaxBytes   int64
	MaxEntries int64
	Owner      *identity // of what is unpacked with normalise, and of the folders that it needs; nil: root
	Follow     bool      // links of root's on the way to Path are followed
	Restore    bool      // an artifact's, see restore.go
}

func (o *unpackOptions) validate() error {
	if o.FileMode != modeNormalise && o.FileMode != modeKeep {
		return fmt.Errorf("fileMode: %.20q is neither %s nor %s", o.FileMode, modeNormalise, modeKeep)
	}
	if o.MaxBytes < 0 || o.MaxBytes > 1<<50 || o.MaxEntries < 0 || o.MaxEntries > 100_000_000 {
		return errors.New("maxBytes or maxEntries: out of range")
	}
	_, err := splitPath(o.Path)
	return err
}

// streamLimit bounds the tar stream: what the files may have, and what headers and long names may add.
func (o *unpackOptions) streamLimit() int64 {
	return o.MaxBytes + o.MaxEntries*(2*maxPath+4096) + 1<<20
}

// unpack reads one framed archive and unpacks it below options.Path, which is made if need be. The archive and the
// folder are both hostile: nothing outside the folder is touched, whatever either does. On an error part of the
// archive may be there.
func unpack(src *bufio.Reader, options *unpackOptions, digest string, progress func()) (*unpackResult, error) {
	root, err := options.open()
	if err != nil {
		return nil, err
	}
	x := newExtractor(options, progress)
	x.root = root
	defer x.close()
	return x.take(src, digest, x.all)
}

// take reads one framed archive and proves it; read takes it apart.
func (x *extractor) take(src *bufio.Reader, digest string, read func(*tar.Reader) error) (*unpackResult, error) {
	archive := newArchiveReader(src, x.options.streamLimit(), x.progress)
	if err := read(tar.NewReader(archive)); err != nil {
		return nil, failed("Unpack", err)
	}
	got, err := archive.finish(x.entries, digest)
	if errors.Is(err, errMismatch) {
		return nil, failed("Digest", err)
	}
	if err != nil {
		return nil, failed("Unpack", err)
	}
	return &unpackResult{trailer: got, skippedList: x.skipped}, nil
}

// discard reads one framed archive and proves it, and does nothing with it.
func discard(src *bufio.Reader, options *unpackOptions, digest string, progress func()) (*unpackResult, error) {
	x := newExtractor(options, progress)
	return x.take(src, digest, func(archive *tar.Reader) error {
		for {
			if _, err := nextEntry(archive); err != nil {
				return atEnd(err)
			}
			if x.entries++; x.entries > options.MaxEntries {
				return fmt.Errorf("more than %d entries", options.MaxEntries)
			}
		}
	})
}

// open gives the folder at Path.
func (o *unpackOptions) open() (int, error) {
	if o.Follow {
		root, created, err := followTrusted(o.Path)
		if err == nil && created {
			err = ownFolder(root, ".", 0o755, o.Owner)
		}
		if err != nil {
			return -1, failed("Prepare", fmt.Errorf("%s: %w", o.Path, err))
		}
		return root, nil
	}
	parts, err := splitPath(o.Path)
	if err != nil {
		return -1, failed("Unpack", err)
	}
	slash, err := openRoot()
	if err != nil {
		return -1, failed("Unpack", err)
	}
	defer syscall.Close(slash)
	root, err := walk(slash, parts, true)
	if err != nil {
		return -1, failed("Unpack", fmt.Errorf("%s: %w", o.Path, err))
	}
	return root, nil
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
	options := &unpackOptions{
		Path: request.Path, FileMode: request.FileMode, MaxBytes: request.MaxBytes, MaxEntries: request.MaxEntries,
	}
	if err := errors.Join(checkProtocol(request.Protocol), options.validate()); err != nil {
		return nil, failed("Protocol", err)
	}
	return unpack(in, options, "", func() {})
}
