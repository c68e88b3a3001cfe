// Helper is the one program that taskfold puts into the containers of a run.
//
// As PID 1 (`helper init`) it keeps the container alive, supervises what runs in it and remembers the results;
// executed beside it (`helper phase`, `pack`, `unpack`) it is the hands of the operator. It needs nothing from the
// image: no shell, no /tmp, no /etc/passwd. Everything in the container's file system is hostile input.
package main

import (
	"fmt"
	"os"
	"runtime"
)

// protocolVersion must be named by every request; README.md describes it.
const protocolVersion = 1

// version is set by the linker: -X main.version=…
var version = "dev"

const usage = `usage: helper COMMAND
  init [--name main]    be PID 1 of the container
  phase [--name main]   run or attach to one phase; request on stdin, events on stdout
  wait [--name main] --nonce NONCE
                        end when that phase of another container is done
  pack                  request on stdin, one archive on stdout
  unpack                request and one archive on stdin, result on stdout
  exec                  run one command; request and input on stdin, outputs and end on stdout
  shell [--user USER] [--cwd DIR] PROGRAM [ARGUMENT...]
                        become a user, then the program
  record                print the identity of this process, also to /dev/termination-log
  copy DIR              copy this program to DIR/helper
  put SOURCE TARGET     copy a file as the user that this runs as
  probe --canary IP:PORT ... [--dns IP:PORT --name NAME] [--gateway IP:PORT]
                        end with 0 once no canary can be reached; result as JSON, also to /dev/termination-log
  canary --port PORT --ready-port PORT [--peers NAME]
                        be there to be reached
  version               print the version
`

func main() {
	// A sandbox belongs to the task, not to its housekeeping.
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	commands := map[string]func([]string) error{
		"init": runInit, "phase": runPhase, "pack": runPack, "unpack": runUnpack, "wait": runWait,
		"exec": runExec, "shell": runShell, "record": runRecord, "copy": runCopy, "put": runPut, "version": runVersion,
		"probe": runProbe, "canary": runCanary,
	}
	command, known := commands[os.Args[1]]
	if !known {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	err := leaveGroup()
	if err == nil {
		err = hide()
	}
	if err == nil {
		err = command(os.Args[2:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "helper %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func runVersion([]string) error {
	_, err := fmt.Printf("taskfold helper %s protocol %d %s/%s\n", version, protocolVersion, runtime.GOOS, runtime.GOARCH)
	return err
}
