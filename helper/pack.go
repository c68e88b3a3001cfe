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
	// Values to scrub. A shorter one would blot out what is no secret.
	minScrub      = 8
	maxScrub      = 64 << 10
	maxScrubs     = 256
	maxScrubBytes = 512 << 10 // together
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
	Scrub        [][]byte   `json:"scrub"`
	ScrubExcept  []string   `json:"scrubExcept"`
}

// packRoot is a path in the container and its name in the archive; "." puts a folder's contents at the top.
type packRoot struct {
	Path string `json:"path"`
	As   string `json:"as"`
	Only bool   `json:"only"` // left out where another root would have it too
}

type packTrailer struct {
	trailer
	skippedList
	Changed      []string `json:"changed"`
	ChangedCount int64    `json:"changedCount"`
	Truncated    bool     `json:"truncated"`
	Scrubbed     int64    `json:"scrubbed"`
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
	return r.validateScrub()
}

// validateScrub never quotes a value: its errors are read by people.
func (r *packRequest) validateScrub() error {
	if len(r.Scrub) > maxScrubs || len(r.ScrubExcept) > maxRoots {
		return fmt.Errorf("scrub or scrubExcept: more than %d values or %d paths", maxScrubs, maxRoots)
	}
	total := 0
	for i, value := range r.Scrub {
		if len(value) < minScrub || len(value) > maxScrub {
			return fmt.Errorf("scrub[%d]: %d bytes are not between %d and %d", i, len(value), minScrub, maxScrub)
		}
		total += len(value)
	}
	if total > maxScrubBytes {
		return fmt.Errorf("scrub: %d bytes, more than %d", total, maxScrubBytes)
	}
	for _, except := range r.ScrubExcept {
		if _, err := splitPath(except); err != nil {
			return fmt.Errorf("scrubExcept: %w", err)
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
	return packAsked(body)
}

// packAsked packs what a request asks for.
func packAsked(body []byte) error {
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
