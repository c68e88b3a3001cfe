package main

import (
	"errors"
	"fmt"
	"os"
)

const (
	maxListed     = 100  // entries of a list of skipped or changed things
	maxListedPath = 1024 // bytes of a path in it
	maxRoots      = 1024
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
