package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
)

// terminationLog is where the kubelet picks up a container's last message, of at most maxMessage bytes.
const (
	terminationLog = "/dev/termination-log"
	maxMessage     = 4096
)

// programMode is that of this program's file: see leaveGroup. Only its owner and its group may read it.
const programMode = 0o551 | os.ModeSetgid

// record is who a container's process is when the image alone decides.
type record struct {
	Protocol int    `json:"protocol"`
	UID      int    `json:"uid"`
	GID      int    `json:"gid"`
	Groups   []int  `json:"groups"`
	Cwd      string `json:"cwd"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// runRecord prints the record and leaves it in the pod's status, where the operator finds it without an exec.
func runRecord([]string) error {
	cwd, err := currentDirectory()
	if err != nil {
		return err
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	r := record{protocolVersion, os.Getuid(), os.Getgid(), append([]int{}, groups...), cwd, runtime.GOOS, runtime.GOARCH}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("a record of %d bytes, more than %d", len(body), maxMessage)
	}
	if err := writeAll(1, append(body, '\n')); err != nil {
		return err
	}
	err = os.WriteFile(terminationLog, body, 0o644)
	if os.IsNotExist(err) || os.IsPermission(err) {
		return nil // outside Kubernetes there is none, and stdout has it
	}
	return err
}

// runCopy puts this program into a folder, whole or not at all: for clusters without image volumes.
func runCopy(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("one folder wanted")
	}
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer source.Close()
	temporary := args[0] + "/.helper.new"
	target, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	if err := target.Chmod(programMode); err != nil {
		return err
	}
	if err := target.Close(); err != nil {
		return err
	}
	return os.Rename(temporary, args[0]+"/helper")
}
