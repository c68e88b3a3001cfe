package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Bounds of a request. They protect PID 1, which keeps what they allow in memory.
const (
	maxOperations   = 256
	maxRuns         = 64
	maxReads        = 64
	maxReadBytes    = 9 << 20 // of one phase: reward.json (8 MiB) and small things
	maxInline       = 64 << 10
	maxOutput       = 1 << 30
	maxLimitSeconds = 1e8 // three years
	maxIdleSeconds  = 3600
	idleDefault     = 30
)

// request is what `helper phase` reads from stdin.
type request struct {
	Protocol    int         `json:"protocol"`
	Nonce       string      `json:"nonce"`
	Phase       string      `json:"phase"`
	AttachOnly  bool        `json:"attachOnly"`
	IdleSeconds float64     `json:"idleSeconds"`
	Prepare     []operation `json:"prepare"`
	work
}

// work is what PID 1 does once a phase has started.
type work struct {
	Runs []runSpec  `json:"runs"`
	Read []readSpec `json:"read"`
}

// operation is one step of the preparation; Op says which of the other fields count.
type operation struct {
	Op         string    `json:"op"`
	Required   bool      `json:"required"`
	Names      []string  `json:"names"`
	Path       string    `json:"path"`
	Keep       []string  `json:"keep"`
	Mode       string    `json:"mode"`
	User       *userSpec `json:"user"`
	Existing   string    `json:"existing"`
	Digest     *string   `json:"digest"`
	MaxBytes   int64     `json:"maxBytes"`
	MaxEntries int64     `json:"maxEntries"`
	FileMode   string    `json:"fileMode"`
	Base64     []byte    `json:"base64"`
	userSpec             // of op "user"
}

// runSpec is one program to run to its end.
type runSpec struct {
	Name              string            `json:"name"`
	Argv              []string          `json:"argv"`
	Env               map[string]string `json:"env"`
	Cwd               *string           `json:"cwd"`
	User              *userSpec         `json:"user"`
	LimitSeconds      *float64          `json:"limitSeconds"`
	Output            *outputSpec       `json:"output"`
	ContinueOnFailure bool              `json:"continueOnFailure"`
}

// outputSpec says how much of a run's output stays: in the file, and in the result (InlineBytes, from the end).
type outputSpec struct {
	Path        *string `json:"path"`
	HeadBytes   int64   `json:"headBytes"`
	TailBytes   int64   `json:"tailBytes"`
	InlineBytes int     `json:"inlineBytes"`
}

// readSpec is a file to read when the last run has ended.
type readSpec struct {
	Path     string `json:"path"`
	MaxBytes int64  `json:"maxBytes"`
}

// event is one line on stdout; the fields that belong to it depend on Event.
type event struct {
	Event     string  `json:"event"`
	Results   []any   `json:"results,omitempty"`
	StartedAt string  `json:"startedAt,omitempty"`
	Attached  *bool   `json:"attached,omitempty"`
	Result    *result `json:"result,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Message   string  `json:"message,omitempty"`
	Path      string  `json:"path,omitempty"` // only between init and phase: the PATH of PID 1
}

// result is the end of a phase. It never changes once made.
type result struct {
	Prepared  json.RawMessage `json:"prepared"`
	StartedAt string          `json:"startedAt"`
	EndedAt   string          `json:"endedAt"`
	Runs      []runResult     `json:"runs"`
	Files     []fileResult    `json:"files"`
}

// runResult is the end of one program: exactly one of ReturnCode, Signal, StartError is set.
type runResult struct {
	Name       string       `json:"name"`
	ReturnCode *int         `json:"returnCode"`
	Signal     *int         `json:"signal"`
	Seconds    float64      `json:"seconds"`
	TimedOut   bool         `json:"timedOut"`
	StartError *string      `json:"startError"`
	Output     outputResult `json:"output"`
}

type outputResult struct {
	Bytes  int64   `json:"bytes"` // printed until the leader's end
	Kept   int64   `json:"kept"`  // in the file
	Gap    bool    `json:"gap"`
	Error  *string `json:"error"`
	Inline []byte  `json:"inline,omitempty"`
}

type fileResult struct {
	Path    string `json:"path"`
	State   string `json:"state"` // regular, missing, notRegular, tooLarge, unreadable
	Size    int64  `json:"size"`
	Content []byte `json:"base64,omitempty"`
}

// failure ends a phase, an archive or a request before anything was started. Reason is from a closed set.
type failure struct {
	Reason  string
	Message string
}

func (f *failure) Error() string { return f.Reason + ": " + f.Message }

func failed(reason string, err error) *failure { return &failure{reason, err.Error()} }

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
	return r.work.validate()
}

func (o *operation) validate() error {
	if o.User != nil {
		if err := o.User.valid(); err != nil {
			return err
		}
	}
	switch o.Op {
	case "tools":
		return nil
	case "user":
		return o.userSpec.valid()
	case "reset":
	case "directory", "write":
		if _, err := parseMode(o.Mode); err != nil {
			return err
		}
		if o.Op == "directory" && o.Existing != "" && o.Existing != "keep" && o.Existing != "own" {
			return fmt.Errorf("existing: %.20q is neither keep nor own", o.Existing)
		}
	case "unpack":
		if err := (&unpackOptions{o.Path, o.FileMode, o.MaxBytes, o.MaxEntries}).validate(); err != nil {
			return err
		}
	default:
		return errors.New("unknown operation")
	}
	_, err := splitPath(o.Path)
	return err
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
	if r.LimitSeconds != nil && !(*r.LimitSeconds > 0) {
		return fmt.Errorf("limitSeconds: %v is not greater than 0", *r.LimitSeconds)
	}
	if r.User != nil {
		if err := r.User.valid(); err != nil {
			return err
		}
	}
	return r.Output.validate()
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

// limit is the run's time limit; 0 for none.
func (r *runSpec) limit() time.Duration {
	if r.LimitSeconds == nil {
		return 0
	}
	return max(time.Duration(min(*r.LimitSeconds, maxLimitSeconds)*float64(time.Second)), 1)
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
