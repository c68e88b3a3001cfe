// Command forward carries TCP connections from the host's loopback into the
// network namespace it runs in.
//
// Each argument is FD=ADDRESS: FD is a listening socket that was made on the
// host and inherited from there, ADDRESS is dialled from this process's own
// namespace. So the host reaches one address inside the cluster, and gets no
// route, no address and no packet filter rule for it.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: forward FD=HOST:PORT …")
		os.Exit(64)
	}
	var servers sync.WaitGroup
	for _, pair := range os.Args[1:] {
		listener, address, err := inherited(pair)
		if err != nil {
			fmt.Fprintf(os.Stderr, "forward: %s: %v\n", pair, err)
			os.Exit(1)
		}
		servers.Go(func() { serve(listener, address) })
	}
	servers.Wait()
	os.Exit(1) // a listener only ends by an error
}

func inherited(pair string) (*net.TCPListener, string, error) {
	number, address, found := strings.Cut(pair, "=")
	if !found {
		return nil, "", fmt.Errorf("not FD=HOST:PORT")
	}
	fd, err := strconv.Atoi(number)
	if err != nil {
		return nil, "", err
	}
	file := os.NewFile(uintptr(fd), pair)
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, "", err
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, "", fmt.Errorf("descriptor %d is not a TCP listener", fd)
	}
	return tcp, address, nil
}

func serve(listener *net.TCPListener, address string) {
	for {
		client, err := listener.AcceptTCP()
		if err != nil {
			fmt.Fprintf(os.Stderr, "forward: accept for %s: %v\n", address, err)
			if temporary, ok := err.(interface{ Temporary() bool }); ok && temporary.Temporary() {
				time.Sleep(100 * time.Millisecond) // out of descriptors: others will close
				continue
			}
			return
		}
		go carry(client, address)
	}
}

func carry(client *net.TCPConn, address string) {
	defer client.Close()
	dialled, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "forward: %v\n", err)
		_ = client.SetLinger(0) // a reset tells the client that nobody answered
		return
	}
	server := dialled.(*net.TCPConn)
	defer server.Close()
	var directions sync.WaitGroup
	directions.Go(func() { copyHalf(server, client) })
	directions.Go(func() { copyHalf(client, server) })
	directions.Wait()
}

// copyHalf copies until the source ends and passes that end on, so that the
// other direction may go on. After an error nothing more can arrive in order:
// both ends are closed. Between two TCPConns io.Copy splices in the kernel.
func copyHalf(destination, source *net.TCPConn) {
	if _, err := io.Copy(destination, source); err != nil {
		_ = source.Close()
		_ = destination.Close()
		return
	}
	_ = destination.CloseWrite()
}
