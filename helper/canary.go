package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	canaryLine     = "taskfold canary\n"
	canaryEvery    = time.Second     // between two calls on the peers
	canaryTimeout  = time.Second     // of a connection, and of a look at the peers' names
	canaryFresh    = 3 * time.Second // for so long a call proves something
	canaryClients  = 256             // connections that are served at a time; those above are accepted and closed
	canaryMaxPeers = 16
)

// canary is a server whose only use is to be reached: a pod that cannot reach it is cut off, provided that others can.
// So it counts as ready only while that is proven.
//
// With peers both directions are: it has reached one, and one has reached it, lately. Alone it is its own peer.
type canary struct {
	port  string
	peers string // host name of all of them; empty: none
	own   func() (map[netip.Addr]bool, error)
	look  func(context.Context, string) ([]netip.Addr, error)

	mutex   sync.Mutex
	alone   bool
	reached time.Time // a peer, by us
	visited time.Time // we, by a peer
	trouble string
}

// runCanary serves until it is told to end.
func runCanary(args []string) error {
	flags := flag.NewFlagSet("canary", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	port := flags.Uint("port", 0, "port that is to be reached")
	peers := flags.String("peers", "", "host name with the addresses of all canaries; empty: there are no others")
	ready := flags.Uint("ready-port", 0, "port of the readiness, HTTP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || !validPort(*port) || !validPort(*ready) || *port == *ready {
		return errors.New("--port and --ready-port wanted, two different ones from 1 to 65535")
	}
	stopOnSignal(0)
	served, err := net.Listen("tcp", fmt.Sprint(":", *port))
	if err != nil {
		return err
	}
	asked, err := net.Listen("tcp", fmt.Sprint(":", *ready))
	if err != nil {
		return err
	}
	c := &canary{port: fmt.Sprint(*port), peers: *peers, own: ownAddresses, look: lookUp}
	ended := make(chan error, 2)
	go func() { ended <- accepted(served, c.serve) }()
	go func() { ended <- accepted(asked, c.answer) }()
	go c.call()
	return <-ended
}

func validPort(number uint) bool { return number >= 1 && number <= 65535 }

// accepted serves every connection, so many at a time that a flood costs nothing but itself. It never stops accepting:
// a canary that is slow to accept would look like one that is blocked.
func accepted(listener net.Listener, serve func(net.Conn)) error {
	places := make(chan struct{}, canaryClients)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "canary:", err)
			time.Sleep(10 * time.Millisecond) // no descriptor is free, for example
			continue
		}
		select {
		case places <- struct{}{}:
			go func() {
				defer func() { <-places }()
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(canaryTimeout))
				serve(conn)
			}()
		default:
			conn.Close()
		}
	}
}

// serve says our line, and takes note of a peer, who says it too. Whoever else says it has reached us all the same.
func (c *canary) serve(conn net.Conn) {
	if _, err := io.WriteString(conn, canaryLine); err != nil {
		return
	}
	if hears(conn) {
		c.mutex.Lock()
		c.visited = time.Now()
		c.mutex.Unlock()
	}
}

func hears(conn net.Conn) bool {
	line := make([]byte, len(canaryLine))
	_, err := io.ReadFull(conn, line)
	return err == nil && string(line) == canaryLine
}

// call visits the peers, again and again.
func (c *canary) call() {
	for ; ; time.Sleep(canaryEvery) {
		ctx, cancel := context.WithTimeout(context.Background(), canaryTimeout)
		err := c.round(ctx)
		cancel()
		c.mutex.Lock()
		before := c.trouble
		c.trouble = ""
		if err != nil {
			c.trouble = err.Error()
		}
		now := c.trouble
		c.mutex.Unlock()
		if now != before {
			fmt.Fprintf(os.Stderr, "canary: peers: %s\n", orElse(now, "reached"))
		}
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// round finds the peers and visits each of them once, at the same time.
func (c *canary) round(ctx context.Context) error {
	own, err := c.own()
	if err != nil {
		return err
	}
	peers := []netip.Addr{}
	if c.peers != "" {
		found, err := c.look(ctx, c.peers)
		if err != nil {
			return err
		}
		for _, address := range found {
			if address = address.Unmap(); !own[address] && len(peers) < canaryMaxPeers {
				peers = append(peers, address)
			}
		}
	}
	c.mutex.Lock()
	c.alone = len(peers) == 0
	c.mutex.Unlock()
	if len(peers) == 0 {
		for address := range own {
			peers = append(peers, address)
		}
	}
	visits := make(chan error, len(peers))
	for _, address := range peers {
		go func() { visits <- c.visit(ctx, address) }()
	}
	err = errors.New("no address")
	for range peers {
		if one := <-visits; one == nil {
			c.mutex.Lock()
			c.reached = time.Now()
			c.mutex.Unlock()
			err = nil
		} else if err != nil {
			err = one
		}
	}
	return err
}

func (c *canary) visit(ctx context.Context, address netip.Addr) error {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", net.JoinHostPort(address.String(), c.port))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(canaryTimeout))
	if _, err := io.WriteString(conn, canaryLine); err != nil {
		return err
	}
	if !hears(conn) {
		return fmt.Errorf("%s is no canary", conn.RemoteAddr())
	}
	return nil
}

// unready says why this canary proves nothing at the moment; empty: it does.
func (c *canary) unready(now time.Time) string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	who := "a peer"
	if c.alone {
		who = "itself"
	}
	switch {
	case now.Sub(c.reached) > canaryFresh:
		return fmt.Sprintf("has not reached %s for %v: %s", who, canaryFresh, orElse(c.trouble, "not yet"))
	case now.Sub(c.visited) > canaryFresh:
		return fmt.Sprintf("was not reached by %s for %v", who, canaryFresh)
	}
	return ""
}

// answer is the least of HTTP that the kubelet wants; net/http would be half of this program.
func (c *canary) answer(conn net.Conn) {
	request := bufio.NewReader(io.LimitReader(conn, 8192))
	for {
		line, err := request.ReadString('\n')
		if err != nil {
			return
		}
		if line == "\r\n" || line == "\n" {
			break
		}
	}
	state, text := "200 OK", "ready\n"
	if why := c.unready(time.Now()); why != "" {
		state, text = "503 Service Unavailable", why+"\n"
	}
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		state, len(text), text)
}

// ownAddresses are those of this pod that others may know it by.
func ownAddresses() (map[netip.Addr]bool, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := map[netip.Addr]bool{}
	for _, each := range found {
		if network, is := each.(*net.IPNet); is {
			address, _ := netip.AddrFromSlice(network.IP)
			if address = address.Unmap(); address.IsGlobalUnicast() {
				own[address] = true
			}
		}
	}
	return own, nil
}

func lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}
