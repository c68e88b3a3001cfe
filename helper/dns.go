package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	dnsHeader  = 12
	dnsMessage = 512 // over UDP, without extensions (RFC 1035, 4.2.1)
)

var dnsTypeAndClass = []byte{0, 1, 0, 1} // A, IN

// dnsQuestion is the question for the IPv4 address of a host, as it goes over the wire and comes back.
func dnsQuestion(name string) ([]byte, error) {
	name = strings.TrimSuffix(name, ".")
	question := []byte{}
	for _, label := range strings.Split(name, ".") {
		if label == "" || len(label) > 63 {
			return nil, fmt.Errorf("%q is not a host name", name)
		}
		question = append(append(question, byte(len(label))), label...)
	}
	question = append(question, 0)
	if len(question) > 255 {
		return nil, fmt.Errorf("%q is not a host name: too long", name)
	}
	return append(question, dnsTypeAndClass...), nil
}

// asked asks a name server once, over UDP, and fails unless it answers that the name has an address.
func asked(server netip.AddrPort, name string, timeout time.Duration) error {
	question, err := dnsQuestion(name)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("udp", server.String(), timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	query := make([]byte, dnsHeader, dnsMessage)
	rand.Read(query[:2])
	query[2] = 1 // recursion desired
	query[5] = 1 // one question
	if _, err := conn.Write(append(query, question...)); err != nil {
		return err
	}
	answer := make([]byte, dnsMessage)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	return answered(answer[:n], query[:2], question)
}

// answered fails unless this is an answer to our question, and has an address. What the address is counts for nothing.
func answered(answer, id, question []byte) error {
	if len(answer) < dnsHeader+len(question) || !bytes.Equal(answer[:2], id) || answer[2]&0x80 == 0 ||
		!bytes.EqualFold(answer[dnsHeader:dnsHeader+len(question)], question) {
		return errors.New("what came is no answer to the question")
	}
	if code := answer[3] & 0x0f; code != 0 {
		return fmt.Errorf("the name server answers with code %d", code)
	}
	if binary.BigEndian.Uint16(answer[6:8]) == 0 {
		return errors.New("the name server knows no address of the name")
	}
	return nil
}
