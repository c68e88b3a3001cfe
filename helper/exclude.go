package main

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of what a root leaves out: each name below it is held against every pattern.
const (
	maxExcludes = 256
	maxPattern  = 1024 // bytes
)

// excludes are patterns of names that a root leaves out, as GNU tar takes them with --exclude and `-C root .`: a name is
// "./" and the path below the root; a pattern is matched against it, and against what follows any of its slashes; *, ?
// and [...] match a slash too, a backslash takes a character as it is. Nothing is below a folder that is left out. As
// names end without a slash, a pattern that ends with one matches nothing. Bytes are compared, as in the locale C.
type excludes []string

func (e excludes) validate() error {
	if len(e) > maxExcludes {
		return fmt.Errorf("exclude: more than %d patterns", maxExcludes)
	}
	for _, pattern := range e {
		if len(pattern) > maxPattern || strings.ContainsRune(pattern, 0) {
			return errors.New("exclude: a pattern is too long, or has a NUL byte")
		}
	}
	return nil
}

// all tells whether the root's own name, ".", matches: then nothing in it stays.
func (e excludes) all() bool { return e.match(".") }

// below tells whether the name with this path below the root is left out.
func (e excludes) below(path string) bool { return len(e) > 0 && e.match("./"+path) }

func (e excludes) match(name string) bool {
	for _, pattern := range e {
		// A star in front takes what stands before any of the slashes.
		if glob(pattern, name) || glob("*/"+pattern, name) {
			return true
		}
	}
	return false
}

// glob is fnmatch without flags: it takes time in proportion to the product of the lengths, whatever the pattern.
func glob(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0 // where the last star was, and how far it reaches
	for n < len(name) || p < len(pattern) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, n
			p++
			continue
		}
		if n < len(name) && p < len(pattern) {
			if width, ok := globOne(pattern[p:], name[n]); ok {
				p += width
				n++
				continue
			}
		}
		if star < 0 || mark >= len(name) {
			return false
		}
		mark++
		p, n = star+1, mark
	}
	return true
}

// globOne matches one byte with the beginning of a pattern that is no star, and says how long that beginning is.
func globOne(pattern string, c byte) (width int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pattern) == 1 {
			return 1, false
		}
		return 2, pattern[1] == c
	case '[':
		if width, ok, whole := globClass(pattern, c); whole {
			return width, ok
		}
	}
	return 1, pattern[0] == c
}

// globClass matches a byte with a bracket expression; whole is false for one that does not end: its "[" is a plain one.
func globClass(pattern string, c byte) (width int, ok, whole bool) {
	i := 1
	not := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if not {
		i++
	}
	for first := true; i < len(pattern); first = false {
		if pattern[i] == ']' && !first {
			return i + 1, ok != not, true
		}
		if name, length := globNamed(pattern[i:]); length > 0 {
			ok = ok || inClass(name, c)
			i += length
			continue
		}
		low, next := globByte(pattern, i)
		high := low
		if next+1 < len(pattern) && pattern[next] == '-' && pattern[next+1] != ']' {
			high, next = globByte(pattern, next+1)
		}
		ok = ok || (low <= c && c <= high)
		i = next
	}
	return 0, false, false
}

// globByte is a byte of a bracket expression and where the next one begins.
func globByte(pattern string, at int) (c byte, next int) {
	if pattern[at] == '\\' && at+1 < len(pattern) {
		at++
	}
	return pattern[at], at + 1
}

// globNamed is the name in front of which pattern is "[:name:]", and the length of that.
func globNamed(pattern string) (name string, length int) {
	rest, ok := strings.CutPrefix(pattern, "[:")
	if !ok {
		return "", 0
	}
	name, _, ok = strings.Cut(rest, ":]")
	if !ok || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" {
		return "", 0
	}
	return name, len(name) + len("[::]")
}

func inClass(name string, c byte) bool {
	lower, upper, digit := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9'
	graph := '!' <= c && c <= '~'
	switch name {
	case "lower":
		return lower
	case "upper":
		return upper
	case "digit":
		return digit
	case "alpha":
		return lower || upper
	case "alnum":
		return lower || upper || digit
	case "xdigit":
		return digit || ('a' <= c && c <= 'f') || ('A' <= c && c <= 'F')
	case "blank":
		return c == ' ' || c == '\t'
	case "space":
		return c == ' ' || ('\t' <= c && c <= '\r')
	case "graph":
		return graph
	case "print":
		return graph || c == ' '
	case "punct":
		return graph && !lower && !upper && !digit
	case "cntrl":
		return c < ' ' || c == 0x7f
	}
	return false
}
