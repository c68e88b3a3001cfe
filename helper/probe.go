package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxCanaries    = 16
	maxBlocked     = 100
	maxProbeTime   = time.Hour
	minProbeTime   = time.Millisecond
	maxErrorLength = 1024
)

// probe is what has to be proven before anything untrusted starts in this network namespace: that no canary can be
// reached, `blocked` times in a row, and that the gateway, if there is one, can be.
type probe struct {
	canaries                    []netip.AddrPort
	blocked                     int
	interval, timeout, deadline time.Duration
	dns, gateway                netip.AddrPort // not valid: nothing to prove
	name                        string         // what the dns is asked for
}

// proof is what the operator reads in the pod's status. Attempts are rounds over all canaries, `Open` those in which one
// of them could be reached. Without Enforced, Error says what was missing when the time was over.
type proof struct {
	Enforced bool    `json:"enforced"`
	Blocked  bool    `json:"blocked"`
	Seconds  float64 `json:"seconds"`
	Attempts int     `json:"attempts"`
	Open     int     `json:"open"`
	Gateway  *bool   `json:"gateway"`
	Error    string  `json:"error"`
}

// outcome of one attempt at a canary, or at all of them: the worst of theirs.
type outcome int

const (
	outcomeBlocked outcome = iota
	outcomeUnknown         // our own trouble: it says nothing about the network
	outcomeOpen
)

type attempt struct {
	outcome outcome
	text    string // why it is not outcomeBlocked
}

// runProbe is the whole of an init container: it ends with 0 only when all is proven.
func runProbe(args []string) error {
	stopOnSignal(1)
	p, result, err := parseProbe(args)
	if err != nil {
		return err
	}
	found := p.run()
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	if err := writeAll(1, append(body, '\n')); err != nil {
		return err
	}
	if result != "" {
		if err := os.WriteFile(result, body, 0o644); err != nil {
			return err // a proof that nobody can read is none
		}
	}
	if !found.Enforced {
		return errors.New(found.Error)
	}
	return nil
}

func parseProbe(args []string) (p probe, result string, err error) {
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	flags.Func("canary", "IP:PORT that must not be reachable; may be repeated", func(text string) error {
		address, err := netip.ParseAddrPort(text)
		p.canaries = append(p.canaries, address)
		return err
	})
	flags.IntVar(&p.blocked, "blocked", 5, "attempts in a row that must be blocked")
	flags.DurationVar(&p.interval, "interval", 100*time.Millisecond, "from the beginning of an attempt to that of the next")
	flags.DurationVar(&p.timeout, "timeout", 300*time.Millisecond, "of one connection; one that times out is blocked")
	flags.DurationVar(&p.deadline, "deadline", 15*time.Second, "of the whole proof")
	flags.TextVar(&p.dns, "dns", netip.AddrPort{}, "IP:PORT of the gateway's DNS")
	flags.StringVar(&p.name, "name", "", "host name that it must have an address for")
	flags.TextVar(&p.gateway, "gateway", netip.AddrPort{}, "IP:PORT of the gateway that must accept connections")
	flags.StringVar(&result, "result", terminationLog, "file that gets the result too; empty: none")
	if err := flags.Parse(args); err != nil {
		return p, "", err
	}
	for _, duration := range []time.Duration{p.interval, p.timeout, p.deadline} {
		if duration < minProbeTime || duration > maxProbeTime {
			return p, "", fmt.Errorf("%v: between %v and %v wanted", duration, minProbeTime, maxProbeTime)
		}
	}
	switch {
	case flags.NArg() > 0:
		return p, "", fmt.Errorf("unknown argument %q", flags.Arg(0))
	case len(p.canaries) == 0 || len(p.canaries) > maxCanaries:
		return p, "", fmt.Errorf("--canary: 1 to %d wanted, not %d", maxCanaries, len(p.canaries))
	case p.blocked < 1 || p.blocked > maxBlocked:
		return p, "", fmt.Errorf("--blocked: 1 to %d wanted", maxBlocked)
	case p.dns.IsValid() != (p.name != ""):
		return p, "", errors.New("--dns and --name belong together")
	}
	if p.name != "" {
		if _, err := dnsQuestion(p.name); err != nil {
			return p, "", err
		}
	}
	return p, result, nil
}

// run tries until all is proven at the same time, or the deadline is over.
func (p probe) run() proof {
	began := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), began.Add(p.deadline))
	defer cancel()
	gateway := &awaited{}
	if p.dns.IsValid() {
		gateway.begin(ctx, p.interval, func() error { return asked(p.dns, p.name, p.timeout) })
	}
	if p.gateway.IsValid() {
		gateway.begin(ctx, p.interval, func() error { return accepts(p.gateway, p.timeout) })
	}
	found, inRow, last := proof{}, 0, attempt{outcomeUnknown, "nothing was tried"}
	for next := range p.rounds(ctx) {
		select {
		case last = <-next:
		case <-ctx.Done():
			continue // the rounds end with it
		}
		found.Attempts++
		inRow++
		if last.outcome != outcomeBlocked {
			inRow = 0
		}
		if last.outcome == outcomeOpen {
			found.Open++
		}
		if inRow >= p.blocked && gateway.missing() == "" && ctx.Err() == nil {
			found.Enforced = true
			break
		}
	}
	found.Blocked = inRow >= p.blocked
	found.Seconds = float64(time.Since(began).Milliseconds()) / 1000
	missing := gateway.missing()
	if gateway.count > 0 {
		answered := missing == ""
		found.Gateway = &answered
	}
	if !found.Enforced {
		found.Error = p.why(inRow, last, missing, found.Open)
	}
	return found
}

func (p probe) why(inRow int, last attempt, missing string, open int) string {
	var text []string
	if inRow < p.blocked {
		said := fmt.Sprintf("blocked %d times in a row, not %d; a canary was reached in %d attempts", inRow, p.blocked, open)
		if last.text != "" {
			said += "; last: " + last.text
		}
		text = append(text, said)
	}
	if missing != "" {
		text = append(text, missing)
	}
	if len(text) == 0 {
		text = []string{"the last proof came too late"}
	}
	said := fmt.Sprintf("not enforced within %v: %s", p.deadline, strings.Join(text, "; "))
	return said[:min(len(said), maxErrorLength)]
}

// rounds begins an attempt at all canaries each interval, however long those before it take, and gives their outcomes
// in that order. An attempt that waits for its timeout does not keep the next one from beginning.
func (p probe) rounds(ctx context.Context) <-chan (<-chan attempt) {
	began := make(chan (<-chan attempt), p.timeout/p.interval+2)
	go func() {
		defer close(began)
		ticker := time.NewTicker(p.interval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			done := make(chan attempt, 1)
			go func() { done <- p.round() }()
			select {
			case began <- done:
			case <-ctx.Done():
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
	return began
}

// round tries every canary once, all at the same time.
func (p probe) round() attempt {
	found := make([]attempt, len(p.canaries))
	var all sync.WaitGroup
	for number, address := range p.canaries {
		all.Go(func() { found[number] = tried(address, p.timeout) })
	}
	all.Wait()
	worst := attempt{}
	for _, each := range found {
		if each.outcome > worst.outcome {
			worst = each
		}
	}
	return worst
}

// tried connects to a canary. Whatever accepts is open, whether or not a canary speaks there: what stands between (a
// proxy in the node, say) may pass on later what it takes now.
func tried(address netip.AddrPort, timeout time.Duration) attempt {
	// A route is looked up and nothing is sent. Without one the pod's network is not there yet, which is no policy's doing.
	if err := routed(address); err != nil {
		return attempt{outcomeUnknown, err.Error()}
	}
	err := accepts(address, timeout)
	switch {
	case err == nil:
		return attempt{outcomeOpen, address.String() + " accepts connections"}
	case blocks(err):
		return attempt{}
	default:
		return attempt{outcomeUnknown, err.Error()}
	}
}

// blocks says whether a failed connection was refused on its way or got no answer: policies do the one or the other.
func blocks(err error) bool {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return true
	}
	for _, each := range []syscall.Errno{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EACCES, syscall.EPERM,
		syscall.ENOPROTOOPT, syscall.EPROTO, // further ICMP errors, as Linux tells them
	} {
		if errors.Is(err, each) {
			return true
		}
	}
	return false
}

func routed(address netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
	if err != nil {
		if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
			return nil // refused by whoever guards the sockets, which is not for want of a route
		}
		return err
	}
	return conn.Close()
}

// accepts has a time of its own: cut short by the deadline of the whole, it would look as if nobody had answered.
func accepts(address netip.AddrPort, timeout time.Duration) error {
	dialer := net.Dialer{Timeout: timeout, KeepAlive: -1}
	conn, err := dialer.Dial("tcp", address.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// awaited are things that must have succeeded once.
type awaited struct {
	mutex   sync.Mutex
	count   int
	pending map[int]string
}

// begin tries one of them each interval until it succeeds.
func (a *awaited) begin(ctx context.Context, interval time.Duration, try func() error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.pending == nil {
		a.pending = map[int]string{}
	}
	number := a.count
	a.count++
	a.pending[number] = "the gateway has not answered yet"
	go func() {
		for ctx.Err() == nil {
			err := try()
			a.mutex.Lock()
			if err == nil {
				delete(a.pending, number)
				a.mutex.Unlock()
				return
			}
			if ctx.Err() == nil {
				a.pending[number] = "the gateway does not answer: " + err.Error()
			}
			a.mutex.Unlock()
			select {
			case <-time.After(interval):
			case <-ctx.Done():
			}
		}
	}()
}

// missing says what has not succeeded yet; empty: nothing.
func (a *awaited) missing() string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var text []string
	for number := range a.count {
		if why, found := a.pending[number]; found {
			text = append(text, why)
		}
	}
	return strings.Join(text, "; ")
}
