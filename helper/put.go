package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// runPut copies a file byte for byte, as whoever it runs as: `helper put SOURCE TARGET`. Links are followed and a file
// that is there is overwritten, as `cp` would do; nothing is needed from the image.
func runPut(args []string) error {
	if len(args) != 2 {
		return errors.New("a source and a target are needed")
	}
	source, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(args[1], os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return fmt.Errorf("%s: %w", args[1], err)
	}
	return target.Close()
}
