// Package examples holds release payloads to try Runlevel with.
//
// They are plain folders, for people to read, copy and apply; the package only
// makes them part of the program, so that "runlevel demo" needs no checkout. It
// has nothing that other code should build on. Hello is the one to start from.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed hello
var files embed.FS

// Hello returns a small release: an operator with its API, and what it operates.
func Hello() fs.FS {
	hello, err := fs.Sub(files, "hello")
	if err != nil {
		panic(err) // the name above is wrong
	}
	return hello
}
