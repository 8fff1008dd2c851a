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

// Hello returns a version of a small release, 1.0.0, 1.1.0 or 1.2.0: an operator with
// its API, and what it operates. The second deletes something, the third is the next
// minor version.
func Hello(version string) fs.FS {
	hello, err := fs.Sub(files, "hello/"+version)
	if err != nil {
		panic(err) // there is no such version
	}
	return hello
}
