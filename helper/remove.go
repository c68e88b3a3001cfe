package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
)

const (
	// openDepth bounds the descriptors and the stack that a removal holds; deeper folders are moved up first.
	openDepth = 64
	// maxRounds over one folder: whoever fills it faster than we empty it must not hold us forever.
	maxRounds = 100_000
)

var errMount = errors.New("something is mounted there")

// remover empties folders. It never follows a link and never enters a mount: the kernel refuses to remove the name
// of one (EBUSY), and no folder is entered whose removal was not tried before.
type remover struct {
	top      int             // the folder that is being emptied
	dropped  map[string]bool // names to keep that were no regular files
	progress func()
}

// removeTree removes name below dir, whatever it is.
func removeTree(dir int, name string, progress func()) error {
	progress()
	for range maxAttempts {
		switch err := removeOne(dir, name); err {
		case nil:
			return nil
		case syscall.ENOTEMPTY:
			if err := emptyChild(dir, name, progress); err != nil && err != syscall.ENOENT && err != syscall.ENOTDIR {
				return err
			}
		case syscall.EBUSY:
			return fmt.Errorf("%q: %w", name, errMount)
		default:
			return fmt.Errorf("removing %q: %w", name, err)
		}
	}
	return fmt.Errorf("%q: %w", name, errKeepsChanging)
}

// removeOne removes a file, a link or an empty folder. A name that is not there is fine.
func removeOne(dir int, name string) error {
	err := unlinkat(dir, name, 0)
	if err == syscall.EISDIR {
		err = unlinkat(dir, name, atRemoveDir)
	}
	switch err {
	case syscall.ENOENT:
		return nil
	case syscall.EEXIST: // some file systems say this for "not empty"
		return syscall.ENOTEMPTY
	}
	return err
}

func emptyChild(dir int, name string, progress func()) error {
	folder, err := openForRemoval(dir, name)
	if err != nil {
		return err
	}
	defer folder.Close()
	r := &remover{top: int(folder.Fd()), progress: progress}
	return r.empty(folder, 0, nil)
}

// openForRemoval opens a folder for listing; where we have no such right but own it, we give it to ourselves.
func openForRemoval(dir int, name string) (*os.File, error) {
	const flags = syscall.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NOFOLLOW
	fd, err := openat(dir, name, flags, 0)
	if err == syscall.EACCES {
		var path int
		if path, err = openat(dir, name, oPath|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0); err != nil {
			return nil, err
		}
		err = syscall.Chmod(fmt.Sprintf("/proc/self/fd/%d", path), 0o700)
		syscall.Close(path)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		fd, err = openat(dir, name, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		syscall.Fchmod(fd, 0o700) // a refusal shows when the first name cannot be removed
	}
	return os.NewFile(uintptr(fd), "folder"), nil
}

// empty removes everything in folder but the regular files that keep names.
func (r *remover) empty(folder *os.File, depth int, keep map[string]bool) error {
	for range maxRounds {
		if _, err := folder.Seek(0, io.SeekStart); err != nil {
			return err
		}
		removed, err := r.round(folder, depth, keep)
		if err != nil || removed == 0 {
			return err
		}
	}
	return errKeepsChanging
}

// round goes through the names once. Removing while listing may hide names, so the caller repeats it.
func (r *remover) round(folder *os.File, depth int, keep map[string]bool) (removed int, err error) {
	for {
		names, err := folder.Readdirnames(512)
		for _, name := range names {
			if keep[name] && isRegular(int(folder.Fd()), name) {
				continue
			}
			if keep[name] {
				r.dropped[name] = true
			}
			if err := r.remove(int(folder.Fd()), name, depth); err != nil {
				return removed, err
			}
			removed++
		}
		if err == io.EOF || (err == nil && len(names) == 0) {
			return removed, nil
		}
		if err != nil {
			return removed, err
		}
	}
}

func (r *remover) remove(dir int, name string, depth int) error {
	r.progress()
	switch err := removeOne(dir, name); err {
	case nil:
		return nil
	case syscall.ENOTEMPTY:
		return r.descend(dir, name, depth)
	case syscall.EBUSY:
		return fmt.Errorf("%q: %w", name, errMount)
	default:
		return fmt.Errorf("removing %q: %w", name, err)
	}
}

// descend removes a folder; if it is not empty after all, the next round sees it. Beyond openDepth it is moved to the
// top instead, where a later round finds it: any nesting is removed with few descriptors and no "..".
func (r *remover) descend(dir int, name string, depth int) error {
	if depth >= openDepth {
		err := syscall.Renameat(dir, name, r.top, ".taskfold-"+rand.Text())
		if err == syscall.ENOENT {
			return nil
		}
		return err
	}
	folder, err := openForRemoval(dir, name)
	switch {
	case err == syscall.ENOENT, err == syscall.ENOTDIR, err == syscall.ELOOP:
		return nil // swapped meanwhile; the next round sees what it is
	case err != nil:
		return err
	}
	defer folder.Close()
	if err := r.empty(folder, depth+1, nil); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	unlinkat(dir, name, atRemoveDir) // saves a round; a failure shows in the next one
	return nil
}

// isRegular tells whether name is a regular file itself, not a link to one.
func isRegular(dir int, name string) bool {
	fd, err := openat(dir, name, oPath|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	var stat syscall.Stat_t
	return syscall.Fstat(fd, &stat) == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFREG
}

// removePath removes what is at path, whatever it is; nothing there is fine. The folders above it are housekeeping's.
func removePath(path string, progress func()) error {
	dir, base, err := openParent(path, true)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer syscall.Close(dir)
	if err := removeTree(dir, base, progress); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// resetFolder makes path an empty folder, 0755, ours. A mount point is emptied in place; so is a folder of which
// names are kept, if they are regular files; the others are dropped. Else the folder is a new one: nobody has it open.
func resetFolder(path string, keep []string, progress func()) (dropped []string, err error) {
	dir, base, err := openParent(path, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer syscall.Close(dir)
	if dropped, err = resetBelow(dir, base, keep, progress); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return dropped, nil
}

// resetBelow is resetFolder for a name below dir.
func resetBelow(dir int, base string, keep []string, progress func()) (dropped []string, err error) {
	for range maxAttempts {
		dropped, err := resetOnce(dir, base, keep, progress)
		if err != syscall.EEXIST && err != syscall.ENOTDIR && err != syscall.ENOENT {
			return dropped, err
		}
	}
	return nil, errKeepsChanging
}

func resetOnce(dir int, base string, keep []string, progress func()) (dropped []string, err error) {
	err = unlinkat(dir, base, 0)
	if (err == syscall.EACCES || err == syscall.EPERM) && os.Geteuid() != 0 {
		return emptyInPlace(dir, base, keep, progress) // a volume of our own pod, in a folder that is not ours
	}
	if err == syscall.EISDIR && len(keep) > 0 {
		return emptyInPlace(dir, base, keep, progress)
	}
	if err == syscall.EISDIR {
		if err = unlinkat(dir, base, atRemoveDir); err == syscall.EBUSY {
			return emptyInPlace(dir, base, keep, progress)
		}
	}
	switch err {
	case nil, syscall.ENOENT:
	case syscall.ENOTEMPTY, syscall.EEXIST:
		if err := removeTree(dir, base, progress); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	if err := mkdirat(dir, base, 0o755); err != nil {
		return nil, err
	}
	return nil, ownFolder(dir, base, 0o755, nil)
}

func emptyInPlace(dir int, base string, keep []string, progress func()) (dropped []string, err error) {
	folder, err := openForRemoval(dir, base)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	kept := make(map[string]bool, len(keep))
	for _, name := range keep {
		kept[name] = true
	}
	r := &remover{top: int(folder.Fd()), dropped: map[string]bool{}, progress: progress}
	if err := r.empty(folder, 0, kept); err != nil {
		return nil, err
	}
	// A volume may refuse another owner; that it is empty is what counts.
	if err := own(int(folder.Fd()), 0o755, nil); err != nil && !errors.Is(err, syscall.EPERM) {
		return nil, err
	}
	for name := range r.dropped {
		dropped = append(dropped, name)
	}
	slices.Sort(dropped)
	return dropped, nil
}

// ownFolder sets mode and owner of a folder below dir.
func ownFolder(dir int, name string, mode uint32, owner *identity) error {
	fd, err := openat(dir, name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return own(fd, mode, owner)
}
