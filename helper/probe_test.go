package main

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// closedPort is an address that nobody listens at: on the loopback that is refused, as most policies refuse.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	listener := listening(t, "127.0.0.1:0")
	must(t, listener.Close())
	return addressOf(listener)
}

func listening(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

func addressOf(listener net.Listener) netip.AddrPort {
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

func quick(canaries ...netip.AddrPort) probe {
	return probe{canaries: canaries, blocked: 5, interval: 5 * time.Millisecond, timeout: 200 * time.Millisecond, deadline: 30 * time.Second}
}

// briefly is for what cannot be proven: all of the time is used up.
func briefly(p probe) probe {
	p.deadline = 400 * time.Millisecond
	return p
}

// nameServer answers as the function says; nil: not at all.
func nameServer(t *testing.T, answer func(query []byte) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, dnsMessage)
		for {
			n, from, err := conn.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			if body := answer(append([]byte{}, buffer[:n]...)); body != nil {
				conn.WriteToUDP(body, from)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// withAddress is the answer of a name server that knows the name.
func withAddress(query []byte) []byte {
	query[2] |= 0x80
	query[7] = 1
	return append(query, 0xc0, dnsHeader, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1)
}

func TestRefusedInARowIsEnforced(t *testing.T) {
	found := quick(closedPort(t), closedPort(t)).run()
	if !found.Enforced || found.Attempts != 5 || found.Open != 0 || found.Gateway != nil || found.Error != "" {
		t.Fatalf("%+v", found)
	}
}

func TestACanaryThatAcceptsIsOpenWithoutAWord(t *testing.T) {
	silent := listening(t, "127.0.0.1:0") // the kernel accepts, nobody speaks
	found := briefly(quick(closedPort(t), addressOf(silent))).run()
	if found.Enforced || found.Open == 0 || found.Open != found.Attempts || !strings.Contains(found.Error, "accepts connections") {
		t.Fatalf("one of two is open: %+v", found)
	}
}

func TestNoAnswerIsBlocked(t *testing.T) {
	full := listening(t, "127.0.0.1:0")
	raw, err := full.(*net.TCPListener).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }))
	must(t, err)
	for held := 0; ; held++ { // until the queue is full: then the kernel drops what comes
		conn, err := net.DialTimeout("tcp", full.Addr().String(), 200*time.Millisecond)
		if err != nil {
			break
		}
		defer conn.Close()
		if held > 64 {
			t.Fatal("the queue does not fill")
		}
	}
	p := quick(addressOf(full))
	p.timeout = 20 * time.Millisecond
	if found := p.run(); !found.Enforced {
		t.Fatalf("%+v", found)
	}
}

func TestWhatFlapsIsProvenOnlyByARowWithoutAGap(t *testing.T) {
	// Whoever connects closes it for a moment.
	address := closedPort(t)
	var open atomic.Bool
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			listener, err := net.Listen("tcp", address.String())
			if err != nil {
				continue
			}
			conn, err := listener.Accept()
			if err == nil {
				open.Store(true)
				conn.Close()
			}
			listener.Close()
		}
	}()
	p := quick(address)
	p.blocked = maxBlocked // no such row: what was reached begins it anew
	p.interval = time.Millisecond
	found := briefly(p).run()
	cancel()
	for closed := false; !closed; { // wake the server, should it wait
		select {
		case <-ended:
			closed = true
		default:
			if conn, err := net.DialTimeout("tcp", address.String(), 50*time.Millisecond); err == nil {
				conn.Close()
			}
		}
	}
	if found.Enforced || !open.Load() || found.Open == 0 {
		t.Fatalf("%+v", found)
	}
	if found = quick(address).run(); !found.Enforced { // closed from now on
		t.Fatalf("%+v", found)
	}
}

func TestARowBeginsAnewAfterAnOpenOne(t *testing.T) {
	address := closedPort(t)
	listener := listening(t, address.String())
	p := quick(address)
	go func() {
		for range 3 {
			if conn, err := listener.Accept(); err == nil {
				conn.Close()
			}
		}
		listener.Close()
	}()
	found := p.run()
	if !found.Enforced || found.Open == 0 || found.Attempts < found.Open+p.blocked {
		t.Fatalf("%+v", found)
	}
}

func TestOwnTroubleIsNotAPolicy(t *testing.T) {
	for _, err := range []error{syscall.EMFILE, syscall.ENOBUFS, syscall.EADDRNOTAVAIL, syscall.EINVAL, context.Canceled} {
		if blocks(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)}) {
			t.Fatal(err)
		}
	}
	for _, err := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EPERM, syscall.ETIMEDOUT, os.ErrDeadlineExceeded} {
		if !blocks(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)}) {
			t.Fatal(err)
		}
	}
}

// Without a network nothing can be reached either: that must not count.
func TestWithoutARouteNothingIsProven(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network namespace of its own needs root")
	}
	program, err := buildOnce()
	must(t, err)
	result := t.TempDir() + "/result"
	cmd := exec.Command(program, "probe", "--canary", "192.0.2.1:9", "--deadline", "500ms", "--result", result)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "unreachable") {
		t.Fatal(err, string(output))
	}
}

func TestTheGatewayMustAnswerToo(t *testing.T) {
	gateway := listening(t, "127.0.0.1:0")
	p := quick(closedPort(t))
	p.dns, p.name, p.gateway = nameServer(t, withAddress), "allowed.test", addressOf(gateway)
	if found := p.run(); !found.Enforced || found.Gateway == nil || !*found.Gateway {
		t.Fatalf("%+v", found)
	}
	bad := map[string]func([]byte) []byte{
		"does not answer":   func([]byte) []byte { return nil },
		"code 3":            func(q []byte) []byte { q[2] |= 0x80; q[3] = 3; return q },
		"no address":        func(q []byte) []byte { q[2] |= 0x80; return q },
		"no answer":         func(q []byte) []byte { q = withAddress(q); q[0]++; return q },
		"is no answer":      func(q []byte) []byte { return q },
		"no answer to":      func(q []byte) []byte { q = withAddress(q); q[dnsHeader+1] = 'x'; return q },
		"what came is":      func(q []byte) []byte { return q[:5] },
		"the gateway does ": func([]byte) []byte { return []byte{} },
	}
	for text, answer := range bad {
		p.dns = nameServer(t, answer)
		found := briefly(p).run()
		if found.Enforced || found.Gateway == nil || *found.Gateway || !strings.Contains(found.Error, text) {
			t.Fatalf("%s: %+v", text, found)
		}
	}
	p.dns, p.gateway = nameServer(t, withAddress), closedPort(t)
	if found := briefly(p).run(); found.Enforced || *found.Gateway || !strings.Contains(found.Error, "refused") {
		t.Fatalf("%+v", found)
	}
}

func TestAGatewayThatComesLaterIsWaitedFor(t *testing.T) {
	p := quick(closedPort(t))
	p.gateway = closedPort(t)
	asked := make(chan struct{})
	var once atomic.Bool
	p.dns, p.name = nameServer(t, func(query []byte) []byte {
		if once.CompareAndSwap(false, true) {
			close(asked)
		}
		return withAddress(query)
	}), "Allowed.Test"
	go func() {
		<-asked
		listener, err := net.Listen("tcp", p.gateway.String())
		if err != nil {
			return
		}
		t.Cleanup(func() { listener.Close() })
	}()
	if found := p.run(); !found.Enforced || !*found.Gateway {
		t.Fatalf("%+v", found)
	}
}

func TestTheResultIsLeftForTheKubelet(t *testing.T) {
	program, err := buildOnce()
	must(t, err)
	open := listening(t, "127.0.0.1:0")
	for address, enforced := range map[string]bool{closedPort(t).String(): true, open.Addr().String(): false} {
		result := t.TempDir() + "/result"
		output, err := exec.Command(program, "probe", "--canary", address, "--interval", "5ms", "--deadline", "500ms", "--result", result).Output()
		body, _ := os.ReadFile(result)
		if (err == nil) != enforced || string(output) != string(body)+"\n" {
			t.Fatal(err, string(output), string(body))
		}
		keys := map[string]any{}
		must(t, json.Unmarshal(body, &keys))
		if keys["enforced"] != enforced || keys["gateway"] != nil || len(keys) != 7 || (keys["error"] == "") != enforced {
			t.Fatal(string(body))
		}
	}
	gone := exec.Command(program, "probe", "--canary", closedPort(t).String(), "--interval", "5ms", "--result", "/nowhere/result")
	if err := gone.Run(); err == nil {
		t.Fatal("a proof that cannot be read has succeeded")
	}
}

func TestProbeRefusesWhatItCannotProve(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--canary", "example.com:80"},
		{"--canary", "127.0.0.1"},
		{"--canary", "127.0.0.1:1", "--blocked", "0"},
		{"--canary", "127.0.0.1:1", "--deadline", "0s"},
		{"--canary", "127.0.0.1:1", "--timeout", "-1s"},
		{"--canary", "127.0.0.1:1", "--dns", "127.0.0.1:53"},
		{"--canary", "127.0.0.1:1", "--name", "a.test"},
		{"--canary", "127.0.0.1:1", "--dns", "127.0.0.1:53", "--name", "a..test"},
		{"--canary", "127.0.0.1:1", "more"},
	} {
		if _, _, err := parseProbe(args); err == nil {
			t.Fatalf("%q was taken", args)
		}
	}
	p, result, err := parseProbe([]string{"--canary", "[::1]:7", "--canary", "10.0.0.1:8", "--blocked", "3", "--dns", "10.0.0.2:53", "--name", "a.test."})
	must(t, err)
	if len(p.canaries) != 2 || p.blocked != 3 || p.gateway.IsValid() || result != terminationLog {
		t.Fatalf("%+v %s", p, result)
	}
}
