package main

import (
	"fmt"
	"slices"
	"sync"
)

const (
	maxUnless     = 8   // different paths in one request
	maxUnlessPath = 256 // bytes
	maxShipped    = 64  // paths that PID 1 remembers
)

// shipped is PID 1's memory of which paths were regular files when it was first asked: a preparation that is tried again
// must not take what its first try brought for the image's.
type shipped struct {
	mu    sync.Mutex
	known map[string]bool
}

// those gives the paths that were regular files.
func (s *shipped) those(paths []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]bool{}
	}
	var there []string
	for _, path := range paths[:min(len(paths), maxUnless)] {
		is, asked := s.known[path]
		if !asked {
			is = followsToRegular(path)
			if len(s.known) < maxShipped {
				s.known[path] = is
			}
		}
		if is {
			there = append(there, path)
		}
	}
	return there
}

// unlessPaths are the different paths on which operations depend, checked.
func unlessPaths(operations []operation) ([]string, error) {
	var paths []string
	for i := range operations {
		unless := operations[i].Unless
		if unless == nil || slices.Contains(paths, *unless) {
			continue
		}
		if _, err := splitPath(*unless); err != nil || len(*unless) > maxUnlessPath {
			return nil, fmt.Errorf("unless: %.100q is not an absolute path of at most %d bytes", *unless, maxUnlessPath)
		}
		paths = append(paths, *unless)
	}
	if len(paths) > maxUnless {
		return nil, fmt.Errorf("unless: more than %d paths", maxUnless)
	}
	return paths, nil
}
