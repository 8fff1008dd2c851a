package payload

import (
	"io/fs"
	"testing/fstest"
)

// memory is files by name.
type memory map[string][]byte

func (m memory) open() fs.FS {
	made := fstest.MapFS{}
	for name, text := range m {
		made[name] = &fstest.MapFile{Data: text}
	}
	return made
}
