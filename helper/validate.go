package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// decodeStrict parses one JSON value and refuses keys it does not know: a misspelt limit must not mean "no limit".
func decodeStrict(body []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func checkProtocol(number int) error {
	if number != protocolVersion {
		return fmt.Errorf("protocol %d; this helper speaks %d", number, protocolVersion)
	}
	return nil
}

// validNonce: 32 lower-case hexadecimal digits.
func validNonce(nonce string) bool {
	return len(nonce) == 32 && strings.Trim(nonce, "0123456789abcdef") == ""
}

func (r *request) validate() error {
	if err := checkProtocol(r.Protocol); err != nil {
		return err
	}
	if !validNonce(r.Nonce) {
		return errors.New("nonce: 32 lower-case hexadecimal digits wanted")
	}
	if r.IdleSeconds == 0 {
		r.IdleSeconds = idleDefault
	}
	if r.IdleSeconds < 0 || r.IdleSeconds > maxIdleSeconds {
		return fmt.Errorf("idleSeconds: %v is not between 0 and %d", r.IdleSeconds, maxIdleSeconds)
	}
	if len(r.Prepare) > maxOperations {
		return fmt.Errorf("prepare: more than %d operations", maxOperations)
	}
	for i := range r.Prepare {
		if err := r.Prepare[i].validate(); err != nil {
			return fmt.Errorf("prepare[%d] (%.20s): %w", i, r.Prepare[i].Op, err)
		}
	}
	if _, err := unlessPaths(r.Prepare); err != nil {
		return err
	}
	return r.work.validate()
}

func (o *operation) validate() error {
	if o.User != nil {
		if err := o.User.valid(); err != nil {
			return err
		}
	}
	if o.Unless != nil && o.Op != "reset" && o.Op != "unpack" {
		return errors.New("unless: only of a reset or an unpack")
	}
	switch o.Op {
	case "tools", "userNamespace":
		return nil
	case "user":
		return o.userSpec.valid()
	case "reset", "remove":
	case "move":
		if _, err := splitPath(o.To); err != nil {
			return fmt.Errorf("to: %w", err)
		}
	case "directory", "write":
		if _, err := parseMode(o.Mode); err != nil {
			return err
		}
		if err := o.validDirectory(); o.Op == "directory" && err != nil {
			return err
		}
	case "unpack":
		return o.validUnpack()
	case "restore":
		return o.validRestore()
	default:
		return errors.New("unknown operation")
	}
	_, err := splitPath(o.Path)
	return err
}

// validUnpack: no path is the working directory, which an image may well have behind a link.
func (o *operation) validUnpack() error {
	if o.Links != "" && o.Links != linksReplace && o.Links != linksFollow {
		return fmt.Errorf("links: %.20q is neither %s nor %s", o.Links, linksReplace, linksFollow)
	}
	if o.User != nil && o.FileMode != modeNormalise {
		return fmt.Errorf("user: only with fileMode %s", modeNormalise)
	}
	options := unpackOptions{Path: o.Path, FileMode: o.FileMode, MaxBytes: o.MaxBytes, MaxEntries: o.MaxEntries}
	if o.Path == "" && o.Links == linksFollow {
		options.Path = "/"
	}
	return options.validate()
}

// validRestore: an artifact is a file or a folder.
func (o *operation) validRestore() error {
	if o.Type != typeFile && o.Type != typeDirectory {
		return fmt.Errorf("type: %.20q is neither %s nor %s", o.Type, typeFile, typeDirectory)
	}
	options := unpackOptions{Path: o.Path, FileMode: modeKeep, MaxBytes: o.MaxBytes, MaxEntries: o.MaxEntries}
	return options.validate()
}

// validDirectory looks at what only a directory has; the defaults are keep and replace.
func (o *operation) validDirectory() error {
	if o.Existing != "" && o.Existing != "keep" && o.Existing != "own" {
		return fmt.Errorf("existing: %.20q is neither keep nor own", o.Existing)
	}
	if o.Links != "" && o.Links != linksReplace && o.Links != linksFollow {
		return fmt.Errorf("links: %.20q is neither %s nor %s", o.Links, linksReplace, linksFollow)
	}
	return nil
}

// parseMode reads an octal mode without setuid and setgid bits.
func parseMode(text string) (uint32, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode&^0o1777 != 0 {
		return 0, fmt.Errorf("mode: %.20q is not an octal mode up to 1777", text)
	}
	return uint32(mode), nil
}

func (w *work) validate() error {
	if len(w.Runs) > maxRuns || len(w.Read) > maxReads {
		return fmt.Errorf("more than %d runs or %d files to read", maxRuns, maxReads)
	}
	if err := validLimit(w.LimitSeconds); err != nil {
		return err
	}
	for i := range w.Runs {
		if err := w.Runs[i].validate(); err != nil {
			return fmt.Errorf("runs[%d] (%.40s): %w", i, w.Runs[i].Name, err)
		}
	}
	var total int64
	for _, read := range w.Read {
		if _, err := splitPath(read.Path); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if read.MaxBytes < 0 || read.MaxBytes > maxReadBytes {
			return fmt.Errorf("read: maxBytes %d is not between 0 and %d", read.MaxBytes, maxReadBytes)
		}
		total += read.MaxBytes
	}
	if total > maxReadBytes {
		return fmt.Errorf("read: %d bytes asked for, more than %d", total, maxReadBytes)
	}
	return nil
}

// room is what the results of the work may take in memory.
func (w *work) room() int64 {
	var room int64
	for _, run := range w.Runs {
		if run.Output != nil {
			room += int64(run.Output.InlineBytes)
		}
	}
	for _, read := range w.Read {
		room += read.MaxBytes
	}
	return room
}

func (r *runSpec) validate() error {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return errors.New("argv: a program is needed")
	}
	for _, argument := range r.Argv {
		if strings.ContainsRune(argument, 0) {
			return errors.New("argv: a NUL byte")
		}
	}
	for key, value := range r.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("env: %.40q cannot be a variable", key) // the value may be a secret
		}
	}
	if r.Cwd != nil && (!strings.HasPrefix(*r.Cwd, "/") || strings.ContainsRune(*r.Cwd, 0)) {
		return fmt.Errorf("cwd: %.100q is not an absolute path", *r.Cwd)
	}
	if err := validLimit(r.LimitSeconds); err != nil {
		return err
	}
	if r.Check != nil && r.Background != nil {
		return errors.New("a check cannot go on in the background")
	}
	if err := r.Check.validate(); err != nil {
		return err
	}
	if r.Background != nil && !(r.Background.SettleSeconds >= 0) {
		return fmt.Errorf("settleSeconds: %v is less than 0", r.Background.SettleSeconds)
	}
	if r.User != nil {
		if err := r.User.valid(); err != nil {
			return err
		}
	}
	return r.Output.validate()
}

func validLimit(limit *float64) error {
	if limit != nil && !(*limit > 0) {
		return fmt.Errorf("limitSeconds: %v is not greater than 0", *limit)
	}
	return nil
}

func (c *checkSpec) validate() error {
	if c == nil {
		return nil
	}
	for _, number := range []float64{c.IntervalSeconds, c.StartIntervalSeconds, c.StartPeriodSeconds, float64(c.Retries)} {
		if !(number >= 0) {
			return fmt.Errorf("check: %v is less than 0", number)
		}
	}
	return nil
}

func (o *outputSpec) validate() error {
	if o == nil {
		return nil
	}
	if o.HeadBytes < 0 || o.HeadBytes > maxOutput || o.TailBytes < 0 || o.TailBytes > maxOutput {
		return fmt.Errorf("output: headBytes and tailBytes are between 0 and %d", maxOutput)
	}
	if o.InlineBytes < 0 || o.InlineBytes > maxInline {
		return fmt.Errorf("output: inlineBytes is between 0 and %d", maxInline)
	}
	if o.Path == nil {
		return nil
	}
	_, err := splitPath(*o.Path)
	return err
}
