package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// moveContents renames what lies in the folder at path into the folder at to, which is made if need be and is 0700 and
// ours then. Regular files that keep names stay. Nothing is copied or followed; what has a name there already gives way.
// No folder at path, or a link: there is nothing to move. On an error the rest is moved all the same.
func moveContents(path, to string, keep []string, progress func()) (moved int, err error) {
	parts, err := splitPath(path)
	if err != nil {
		return 0, err
	}
	slash, err := openRoot()
	if err != nil {
		return 0, err
	}
	defer syscall.Close(slash)
	from, err := walk(slash, parts, false)
	if err == syscall.ENOENT || err == syscall.ENOTDIR || err == syscall.ELOOP {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	defer syscall.Close(from)
	into, _, err := replacePath(to)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", to, err)
	}
	defer syscall.Close(into)
	if err := ownFolder(into, ".", 0o700, nil); err != nil {
		return 0, fmt.Errorf("%s: %w", to, err)
	}
	m := &mover{from: from, into: into, kept: map[string]bool{}, progress: progress}
	for _, name := range keep {
		m.kept[name] = true
	}
	for range maxAttempts { // renaming while listing may hide names
		before := m.moved
		if err := m.round(); err != nil {
			return m.moved, fmt.Errorf("%s: %w", path, err)
		}
		if m.moved == before {
			return m.moved, m.failed
		}
	}
	return m.moved, fmt.Errorf("%s: %w", path, errKeepsChanging)
}

// mover moves names from one folder to another.
type mover struct {
	from, into int
	kept       map[string]bool
	moved      int
	failed     error // of the first name that could not be moved
	progress   func()
}

func (m *mover) round() error {
	folder, err := readable(m.from)
	if err != nil {
		return err
	}
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(512)
		for _, name := range names {
			m.move(name)
		}
		if err == io.EOF || (err == nil && len(names) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (m *mover) move(name string) {
	m.progress()
	if m.kept[name] && isRegular(m.from, name) {
		return
	}
	err := syscall.Renameat(m.from, name, m.into, name)
	if err == syscall.ENOTEMPTY || err == syscall.EEXIST || err == syscall.EISDIR || err == syscall.ENOTDIR {
		if err = removeTree(m.into, name, m.progress); err == nil {
			err = syscall.Renameat(m.from, name, m.into, name)
		}
	}
	switch {
	case err == nil:
		m.moved++
	case errors.Is(err, syscall.ENOENT): // gone meanwhile
	case m.failed == nil:
		m.failed = fmt.Errorf("%q: %w", name, err)
	}
}
