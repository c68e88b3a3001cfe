package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// preparation carries out the operations of a phase, in order, in the process that holds the claim.
type preparation struct {
	in       *bufio.Reader // the archives, one per unpack
	path     string        // PATH of PID 1
	cwd      string        // its working directory, the image's
	progress func()
	send     func() // asks the client for the archives
	sent     bool
	shipped  []string // paths of "unless" that the image has as regular files
	restorer *restorer
}

// Results of operations. Fields are always printed, so that their absence means "not this operation".
type (
	toolsResult struct {
		Op      string   `json:"op"`
		Missing []string `json:"missing"`
	}
	userResult struct {
		Op     string `json:"op"`
		UID    int    `json:"uid"`
		GID    int    `json:"gid"`
		Groups []int  `json:"groups"`
		Home   string `json:"home"`
	}
	userError struct {
		Op    string `json:"op"`
		Error string `json:"error"`
	}
	plainResult struct {
		Op string `json:"op"`
	}
	resetResult struct {
		Op      string   `json:"op"`
		Dropped []string `json:"dropped"` // names that were to stay, of what was no regular file
		Unless  bool     `json:"unless,omitempty"`
	}
	directoryResult struct {
		Op      string `json:"op"`
		Created bool   `json:"created"`
	}
	moveResult struct {
		Op    string `json:"op"`
		Moved int    `json:"moved"`
		Error string `json:"error"` // why something stayed; the next operation goes on
	}
	unpackResult struct {
		Op      string  `json:"op,omitempty"`
		Seconds float64 `json:"seconds,omitempty"` // of an operation: from the request for the archive on
		Unless  bool    `json:"unless,omitempty"`
		trailer
		skippedList
	}
)

// run returns one result per operation, up to the one that failed.
func (p *preparation) run(operations []operation) ([]any, error) {
	results := make([]any, 0, len(operations))
	for i := range operations {
		p.progress()
		result, err := p.one(&operations[i])
		if result != nil {
			results = append(results, result)
		}
		if err != nil {
			if fail := (*failure)(nil); !errors.As(err, &fail) {
				err = failed("Prepare", fmt.Errorf("%s: %w", operations[i].Op, err))
			}
			return results, err
		}
	}
	return results, nil
}

func (p *preparation) one(o *operation) (any, error) {
	switch o.Op {
	case "tools":
		return p.tools(o)
	case "user":
		return p.user(o)
	case "userNamespace":
		return p.userNamespace(o)
	case "reset":
		if p.unless(o) {
			return resetResult{o.Op, []string{}, true}, nil
		}
		dropped, err := resetFolder(o.Path, o.Keep, p.progress)
		return resetResult{o.Op, append([]string{}, dropped...), false}, err
	case "remove":
		return plainResult{o.Op}, removePath(o.Path, p.progress)
	case "move":
		result := moveResult{Op: o.Op}
		moved, err := moveContents(o.Path, o.To, o.Keep, p.progress)
		if result.Moved = moved; err != nil {
			result.Error = err.Error()
		}
		return result, nil
	case "directory":
		return p.directory(o)
	case "unpack":
		return p.unpack(o)
	case "restore":
		return p.restore(o)
	default: // "write"; validate refused all others
		return plainResult{o.Op}, p.write(o)
	}
}

// tools looks for programs where a run without an environment of its own would find them.
func (p *preparation) tools(o *operation) (any, error) {
	result := toolsResult{o.Op, []string{}}
	for _, name := range o.Names {
		if _, err := findProgram(name, p.path, "/"); err != nil {
			result.Missing = append(result.Missing, name)
		}
	}
	if o.Required && len(result.Missing) > 0 {
		return result, &failure{"MissingTools", "not found in PATH: " + strings.Join(result.Missing, ", ")}
	}
	return result, nil
}

func (p *preparation) user(o *operation) (any, error) {
	id, reason, err := lookupReachable(&o.userSpec)
	if err != nil {
		result := userError{o.Op, err.Error()}
		if o.Required {
			return result, failed(reason, err)
		}
		return result, nil
	}
	return userResult{o.Op, id.UID, id.GID, id.Groups, id.Home}, nil
}

// owner resolves the user that a folder or file is for; nil for none.
func owner(u *userSpec) (*identity, error) {
	if u == nil {
		return nil, nil
	}
	id, reason, err := lookupReachable(u)
	if err != nil {
		return nil, failed(reason, err)
	}
	return id, nil
}

// lookupReachable resolves a user that programs are to run as, or gives the reason of the failure.
func lookupReachable(u *userSpec) (id *identity, reason string, err error) {
	if id, err = lookupUser(u); err != nil {
		return nil, "UnknownUser", err
	}
	if err = id.reachable(); err != nil {
		return nil, "ForbiddenUser", err
	}
	return id, "", nil
}

// userNamespace proves that root of this container is not root of its node.
func (p *preparation) userNamespace(o *operation) (any, error) {
	ranges, err := readMap("/proc/self/uid_map")
	if err == nil {
		err = ownNamespace(ranges)
	}
	if err != nil {
		return nil, failed("NoUserNamespace", err)
	}
	return plainResult{o.Op}, nil
}

func (p *preparation) directory(o *operation) (any, error) {
	mode, err := parseMode(o.Mode)
	if err != nil {
		return nil, err
	}
	id, err := owner(o.User)
	if err != nil {
		return nil, err
	}
	open := replacePath
	if o.Links == linksFollow {
		open = followPath
	}
	fd, created, err := open(o.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	defer syscall.Close(fd)
	if created || o.Existing == "own" {
		err = ownFolder(fd, ".", mode, id)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	return directoryResult{o.Op, created}, nil
}

func (p *preparation) write(o *operation) error {
	mode, err := parseMode(o.Mode)
	if err != nil {
		return err
	}
	id, err := owner(o.User)
	if err != nil {
		return err
	}
	file, err := createPath(o.Path, os.O_WRONLY, mode, id)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(o.Base64)
	return err
}

func (p *preparation) unpack(o *operation) (any, error) {
	began := time.Now()
	p.ask()
	id, err := owner(o.User)
	if err != nil {
		return nil, err
	}
	options := unpackOptions{
		Path: o.Path, FileMode: o.FileMode, MaxBytes: o.MaxBytes, MaxEntries: o.MaxEntries,
		Owner: id, Follow: o.Links == linksFollow,
	}
	if options.Path == "" {
		options.Path = p.cwd
	}
	unpacking := unpack
	if p.unless(o) {
		unpacking = discard
	}
	result, err := unpacking(p.in, &options, o.digest(), p.progress)
	if err != nil {
		return nil, err
	}
	result.Op, result.Unless, result.Seconds = o.Op, p.unless(o), time.Since(began).Seconds()
	return result, nil
}

func (p *preparation) restore(o *operation) (any, error) {
	began := time.Now()
	p.ask()
	if p.restorer == nil {
		p.restorer = newRestorer(p.progress)
	}
	result, err := p.restorer.restore(p.in, o, o.digest())
	if err != nil {
		return nil, err
	}
	result.Op, result.Seconds = o.Op, time.Since(began).Seconds()
	return result, nil
}

// ask asks for the archives, once.
func (p *preparation) ask() {
	if !p.sent {
		p.send()
		p.sent = true
	}
}

// unless: the operation is not to be done, as the image has a file.
func (p *preparation) unless(o *operation) bool {
	return o.Unless != nil && slices.Contains(p.shipped, *o.Unless)
}

// digest that the archive must have; empty for any.
func (o *operation) digest() string {
	if o.Digest == nil {
		return ""
	}
	return strings.TrimPrefix(*o.Digest, "sha256:")
}
