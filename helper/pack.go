package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	maxListed     = 100  // entries of a list of skipped or changed things
	maxListedPath = 1024 // bytes of a path in it, as it is
	maxRoots      = 1024
	// Values to scrub. A shorter one would blot out what is no secret.
	minScrub      = 8
	maxScrub      = 64 << 10
	maxScrubs     = 256
	maxScrubBytes = 512 << 10 // together
)

// skippedList names what an archive left out: the first maxListed, as far as there is room, and how many in all.
type skippedList struct {
	Skipped      []skippedEntry `json:"skipped"`
	SkippedCount int64          `json:"skippedCount"`
	room         *listRoom
}

type skippedEntry struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (s *skippedList) add(path, reason string) {
	s.SkippedCount++
	if len(s.Skipped) < maxListed {
		if text, ok := s.room.take(path); ok {
			s.Skipped = append(s.Skipped, skippedEntry{text, reason})
		}
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
	Keep         bool       `json:"keep"` // on a stream that is kept: after the trailer another request may come
}

// packRoot is a path in the container, a relative one in its working directory, and its name in the archive; "." puts a
// folder's contents at the top.
type packRoot struct {
	Path    string   `json:"path"`
	As      string   `json:"as"`
	Only    bool     `json:"only"` // left out where another root would have it too
	Exclude excludes `json:"exclude"`
}

type packTrailer struct {
	trailer
	skippedList
	Changed      []string     `json:"changed"`
	ChangedCount int64        `json:"changedCount"`
	Truncated    bool         `json:"truncated"`
	Scrubbed     int64        `json:"scrubbed"`
	Roots        []rootResult `json:"roots"`
}

func (r *packRequest) validate() error {
	if err := checkProtocol(r.Protocol); err != nil {
		return err
	}
	if len(r.Roots) == 0 || len(r.Roots) > maxRoots || r.MaxBytes < 0 || r.MaxEntries < 0 {
		return errors.New("roots, maxBytes or maxEntries: out of range")
	}
	for _, root := range r.Roots {
		if root.Path == "" {
			return errors.New("roots: a root without a path")
		}
		if _, err := splitRelative(strings.TrimLeft(root.Path, "/")); err != nil {
			return err
		}
		if _, err := splitRelative(root.As); err != nil {
			return err
		}
		if err := root.Exclude.validate(); err != nil {
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
	_, err = packAsked(body)
	return err
}

// packAsked packs what a request asks for. keep: another one may follow.
func packAsked(body []byte) (keep bool, err error) {
	request := &packRequest{}
	if err := decodeStrict(body, request); err != nil {
		return false, fmt.Errorf("the request: %w", err)
	}
	err = request.validate()
	if err == nil {
		err = request.resolve(currentDirectory)
	}
	if err != nil {
		return false, fmt.Errorf("the request: %w", err)
	}
	growPipe(1)
	return request.Keep, pack(os.Stdout, request)
}
