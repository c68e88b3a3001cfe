package main

import (
	"encoding/json"
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
	Keep        bool        `json:"keep"`
	Prepare     []operation `json:"prepare"`
	work
}

// work is what PID 1 does once a phase has started.
type work struct {
	LimitSeconds *float64   `json:"limitSeconds"` // of all runs together
	Runs         []runSpec  `json:"runs"`
	Read         []readSpec `json:"read"`
}

// operation is one step of the preparation; Op says which of the other fields count.
type operation struct {
	Op         string    `json:"op"`
	Required   bool      `json:"required"`
	Names      []string  `json:"names"`
	Path       string    `json:"path"`
	To         string    `json:"to"`
	Keep       []string  `json:"keep"`
	Mode       string    `json:"mode"`
	User       *userSpec `json:"user"`
	Existing   string    `json:"existing"`
	Links      string    `json:"links"`
	Digest     *string   `json:"digest"`
	MaxBytes   int64     `json:"maxBytes"`
	MaxEntries int64     `json:"maxEntries"`
	FileMode   string    `json:"fileMode"`
	Base64     []byte    `json:"base64"`
	Type       string    `json:"type"`
	Unless     *string   `json:"unless"`
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
	Check             *checkSpec        `json:"check"`
	Background        *backgroundSpec   `json:"background"`
	MakeCwd           bool              `json:"makeCwd"`
	OwnEnv            bool              `json:"ownEnv"` // Env is all there is, but for HOME
}

// checkSpec makes a run a check: attempts until one succeeds, or until those that failed count too much.
type checkSpec struct {
	IntervalSeconds      float64 `json:"intervalSeconds"`
	StartIntervalSeconds float64 `json:"startIntervalSeconds"` // after a failure that began within the start period
	StartPeriodSeconds   float64 `json:"startPeriodSeconds"`
	Retries              int64   `json:"retries"`
}

// backgroundSpec makes a run go on beside what follows, for the life of the container.
type backgroundSpec struct {
	SettleSeconds float64 `json:"settleSeconds"` // the next run begins so much later, or at its end
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
	Cwd       string  `json:"cwd,omitempty"`  // likewise: its working directory
	// Shipped: likewise, those paths of the claim's Unless that were regular files.
	Shipped []string `json:"shipped,omitempty"`
}

// result is the end of a phase. It never changes once made.
type result struct {
	Prepared  json.RawMessage `json:"prepared"`
	StartedAt string          `json:"startedAt"`
	EndedAt   string          `json:"endedAt"`
	Runs      []runResult     `json:"runs"`
	Files     []fileResult    `json:"files"`
	// Background has the runs of this container that went on beside others and had ended by then.
	Background []backgroundResult `json:"background"`
}

type backgroundResult struct {
	Nonce string    `json:"nonce"` // of the phase that began it
	Run   runResult `json:"run"`
}

// runResult is the end of one program: exactly one of ReturnCode, Signal, StartError is set.
type runResult struct {
	Name       string       `json:"name"`
	ReturnCode *int         `json:"returnCode"`
	Signal     *int         `json:"signal"`
	Seconds    float64      `json:"seconds"`
	TimedOut   bool         `json:"timedOut"`
	StartError *string      `json:"startError"`
	OOMKills   int64        `json:"oomKills"` // by the container's memory limit, while the run went on
	Attempts   int          `json:"attempts"` // of a check; of another run 1. Seconds are those of all of them
	Output     outputResult `json:"output"`
}

type outputResult struct {
	Bytes  int64   `json:"bytes"` // printed until the leader's end
	Kept   int64   `json:"kept"`  // in the file
	Gap    bool    `json:"gap"`
	Error  *string `json:"error"`
	Inline []byte  `json:"inline"`
}

type fileResult struct {
	Path    string `json:"path"`
	State   string `json:"state"` // regular, missing, notRegular, tooLarge, unreadable
	Size    int64  `json:"size"`
	Content []byte `json:"base64"`
}

// failure ends a phase, an archive or a request before anything was started. Reason is from a closed set.
type failure struct {
	Reason  string
	Message string
}

func (f *failure) Error() string { return f.Reason + ": " + f.Message }

func failed(reason string, err error) *failure { return &failure{reason, err.Error()} }

// limit is the run's time limit; 0 for none.
func (r *runSpec) limit() time.Duration {
	if r.LimitSeconds == nil {
		return 0
	}
	return max(seconds(r.LimitSeconds), 1)
}

// seconds of a request as a duration; 0 for none.
func seconds(number *float64) time.Duration {
	if number == nil {
		return 0
	}
	return time.Duration(min(*number, maxLimitSeconds) * float64(time.Second))
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
