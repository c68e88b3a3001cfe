package main

import (
	"archive/tar"
	"hash/maphash"
	"strings"
	"syscall"
)

// symlink makes a link that stays below the root; others are left out.
func (x *extractor) symlink(h *tar.Header, name, base string) error {
	if !x.linkStays(name, h.Linkname) {
		x.skipped.add(name, "link")
		return nil
	}
	replaced, err := place(x.parent, base, func() error { return symlinkat(h.Linkname, x.parent, base) })
	switch {
	case err != nil:
	case x.options.Restore:
		err = x.keepLink(h, base)
	case x.asRoot && x.options.FileMode == modeKeep:
		err = syscall.Fchownat(x.parent, base, h.Uid, h.Gid, atNoFollow)
	}
	if replaced {
		x.forgetParent()
	}
	return err
}

// staysInside: a relative target whose ".." come first and do not lead above the root. A ".." behind a name could
// lead anywhere once that name is a link itself, so such targets count as leaving.
func staysInside(dir, target string) bool {
	if target == "" || len(target) > maxPath || strings.HasPrefix(target, "/") || strings.ContainsRune(target, 0) {
		return false
	}
	depth := 0
	if dir != "." {
		depth = strings.Count(dir, "/") + 1
	}
	named := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; named || depth < 0 {
				return false
			}
		default:
			named = true
		}
	}
	return true
}

// hardLink links to a file that this archive has brought; others are left out.
func (x *extractor) hardLink(h *tar.Header, name, base string) error {
	parts, err := splitRelative(h.Linkname)
	if err != nil {
		return err
	}
	target := strings.Join(parts, "/")
	if target == name || !x.brought(target) {
		x.skipped.add(name, "link")
		return nil
	}
	dir, err := walk(x.root, parts[:len(parts)-1], false)
	if err != nil && x.options.Restore {
		x.skipped.add(name, "link")
		return nil
	}
	if err != nil {
		return err
	}
	defer syscall.Close(dir)
	targetBase := parts[len(parts)-1]
	if !isRegular(dir, targetBase) {
		x.skipped.add(name, "link")
		return nil
	}
	replaced, err := place(x.parent, base, func() error { return linkat(dir, targetBase, x.parent, base) })
	if replaced {
		x.forgetParent()
	}
	if !x.options.Restore {
		x.files[maphash.String(x.seed, name)] = struct{}{}
	}
	return err
}

// brought tells whether a file of this name may be the archive's. In an artifact's place there is nothing else, so its
// files are not remembered.
func (x *extractor) brought(name string) bool {
	_, known := x.files[maphash.String(x.seed, name)]
	return known || (x.options.Restore && name != "")
}
