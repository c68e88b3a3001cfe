package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxListRoom bounds what the lists of one answer take, as JSON: somebody may have chosen the names to fill it.
const maxListRoom = 256 << 10

// listRoom is what is left for the names in lists; nil is room without end.
type listRoom struct{ left int }

func newListRoom() *listRoom { return &listRoom{maxListRoom} }

// take gives a path as a list shows it; false if there is no room left for it.
func (r *listRoom) take(path string) (text string, ok bool) {
	text = printable(path[:min(len(path), maxListedPath)])
	if r == nil {
		return text, true
	}
	if r.left -= quotedLength(text); r.left < 0 {
		r.left = 0
		return "", false
	}
	return text, true
}

// printable writes bytes that are no UTF-8 as \xNN: JSON has no place for them.
func printable(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var text strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&text, `\x%02x`, name[0])
		} else {
			text.WriteString(name[:size])
		}
		name = name[size:]
	}
	return text.String()
}

// quotedLength is the length of text as a JSON string.
func quotedLength(text string) int {
	body, err := json.Marshal(text)
	if err != nil { // not reached: a string can be encoded
		return len(text)
	}
	return len(body)
}
