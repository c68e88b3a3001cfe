package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// birds are canaries with addresses of the loopback of their own, at one port, that find each other.
func birds(t *testing.T, addresses ...string) []*canary {
	t.Helper()
	listeners, all := []net.Listener{}, []netip.Addr{}
	port := "0"
	for _, address := range addresses {
		listener := listening(t, net.JoinHostPort(address, port))
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		listeners, all = append(listeners, listener), append(all, netip.MustParseAddr(address))
	}
	found := []*canary{}
	for number, listener := range listeners {
		c := &canary{port: port, peers: "canaries"}
		c.own = func() (map[netip.Addr]bool, error) { return map[netip.Addr]bool{all[number]: true}, nil }
		c.look = func(context.Context, string) ([]netip.Addr, error) { return all, nil }
		go accepted(listener, c.serve)
		found = append(found, c)
	}
	return found
}

func round(t *testing.T, c *canary) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.round(ctx)
}

// eventually: what a server notes about a visit comes after the visitor's own end of it.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: ", what)
		}
	}
}

func TestAPairIsReadyOnceEachHasReachedTheOther(t *testing.T) {
	pair := birds(t, "127.0.0.2", "127.0.0.3")
	one, other := pair[0], pair[1]
	if why := one.unready(time.Now()); !strings.Contains(why, "has not reached") {
		t.Fatal(why)
	}
	must(t, round(t, one))
	// One has reached the other, and nobody has reached it: it may be cut off on its way in.
	if why := one.unready(time.Now()); !strings.Contains(why, "was not reached by a peer") {
		t.Fatal(why)
	}
	must(t, round(t, other))
	for _, each := range pair {
		eventually(t, "ready", func() bool { return each.unready(time.Now()) == "" })
		if why := each.unready(time.Now().Add(canaryFresh + time.Second)); why == "" {
			t.Fatal("ready for ever")
		}
	}
}

func TestACanaryWhosePeersAreGoneIsNotReady(t *testing.T) {
	one := birds(t, "127.0.0.4")[0]
	one.look = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.4"), netip.MustParseAddr("127.0.0.5")}, nil
	}
	if err := round(t, one); err == nil || one.unready(time.Now()) == "" {
		t.Fatal("nobody else was reached", err)
	}
}

func TestALonelyCanaryReachesItself(t *testing.T) {
	one := birds(t, "127.0.0.6")[0]
	must(t, round(t, one))
	eventually(t, "ready", func() bool { return one.unready(time.Now()) == "" })
	one.look = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
	if err := round(t, one); err == nil {
		t.Fatal("who the others are is not known")
	}
}

func TestWhoSaysNothingIsNoPeer(t *testing.T) {
	one := birds(t, "127.0.0.7")[0]
	conn, err := net.Dial("tcp", "127.0.0.7:"+one.port)
	must(t, err)
	defer conn.Close()
	if !hears(conn) {
		t.Fatal("no line")
	}
	must(t, conn.(*net.TCPConn).CloseWrite())
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 { // it has closed: it is done with us
		t.Fatal(rest, err)
	}
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if !one.visited.IsZero() {
		t.Fatal("a probe counts as a peer")
	}
}

func TestAFloodIsAcceptedAllTheSame(t *testing.T) {
	one := birds(t, "127.0.0.8")[0]
	for range canaryClients + 50 {
		conn, err := net.DialTimeout("tcp", "127.0.0.8:"+one.port, 5*time.Second)
		must(t, err)
		defer conn.Close()
	}
}

func TestTheProgramIsReadyAlone(t *testing.T) {
	program, err := buildOnce()
	must(t, err)
	port, ready := closedPort(t), closedPort(t)
	_, number, _ := net.SplitHostPort(port.String())
	_, readyNumber, _ := net.SplitHostPort(ready.String())
	cmd := exec.Command(program, "canary", "--port", number, "--ready-port", readyNumber)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	status := func() (int, string) {
		answer, err := http.Get("http://" + ready.String() + "/")
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	eventually(t, "an answer", func() bool { code, _ := status(); return code != 0 })
	own, err := ownAddresses()
	must(t, err)
	if len(own) > 0 { // else this machine has the loopback only, and nothing to be reached at
		eventually(t, "ready", func() bool { code, body := status(); return code == 200 && body == "ready\n" })
	}
	found := briefly(quick(netip.MustParseAddrPort("127.0.0.1:" + number))).run()
	if found.Enforced || found.Open == 0 {
		t.Fatalf("%+v", found)
	}
}

func TestCanaryWantsTwoPorts(t *testing.T) {
	for _, args := range [][]string{{}, {"--port", "1"}, {"--port", "7", "--ready-port", "7"}, {"--port", "70000", "--ready-port", "1"}, {"--port", "1", "--ready-port", "2", "x"}} {
		if err := runCanary(args); err == nil {
			t.Fatalf("%q was taken", args)
		}
	}
}
