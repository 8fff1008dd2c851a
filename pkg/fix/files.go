package fix

import (
	"io/fs"

	"github.com/runlevel/runlevel/pkg/overlay"
)

// FS is the files as they will be.
func (p *Patch) FS() fs.FS {
	files := overlay.On(p.files)
	for _, change := range p.changes {
		files.Remove(change.Path)
	}
	for name, change := range p.changes { // which may be called as another was
		files.Put(name, change.After)
	}
	return files
}
