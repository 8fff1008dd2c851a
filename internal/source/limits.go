package source

import (
	"cmp"
	"fmt"
	"io"

	"github.com/runlevel/runlevel/internal/oci"
)

// Limits bound the size of a release. A zero field has its default.
type Limits struct {
	File  int64 // bytes of one file: 32 MiB
	Total int64 // bytes of all files that are read, with their names: 128 MiB
	Files int   // files, folders and links; of a directory, also in one folder: 100000
	// Unpacked limits the unpacked bytes of an archive, or of the layers of an image:
	// 4 GiB.
	Unpacked int64
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30

	// The longest name of Linux. Longer ones in an archive only cost memory.
	maxName = 4096
)

func (l Limits) withDefaults() Limits {
	return Limits{
		File: cmp.Or(l.File, 32*mib), Total: cmp.Or(l.Total, 128*mib), Files: cmp.Or(l.Files, 100_000),
		Unpacked: cmp.Or(l.Unpacked, 4*gib),
	}
}

// A budget counts files and bytes against the limits.
type budget struct {
	limits   Limits
	files    int
	total    int64
	unpacked int64
}

// countEntry counts one more file, folder or link.
func (b *budget) countEntry(name string) error {
	b.files++
	if b.files > b.limits.Files {
		return oci.SizeError(fmt.Sprintf("it has more than %d files and folders, which is the limit", b.limits.Files))
	}
	return b.add(int64(len(name)))
}

// countFile counts the content of one file.
func (b *budget) countFile(name string, size int64) error {
	if size > b.limits.File {
		return oci.SizeError(fmt.Sprintf("%s has %d bytes: the limit for one file is %s", quoteName(name), size,
			oci.InBytes(b.limits.File)))
	}
	return b.add(size)
}

func (b *budget) add(size int64) error {
	b.total += size
	if b.total > b.limits.Total {
		return oci.SizeError(fmt.Sprintf("its files have more than %s together, which is the limit",
			oci.InBytes(b.limits.Total)))
	}
	return nil
}

// countUnpacked counts bytes of an unpacked stream.
func (b *budget) countUnpacked(size int64) error {
	b.unpacked += size
	if b.unpacked > b.limits.Unpacked {
		return oci.SizeError(fmt.Sprintf("it unpacks to more than %s, which is the limit",
			oci.InBytes(b.limits.Unpacked)))
	}
	return nil
}

// countingReader returns a reader that counts the bytes read through it.
func (b *budget) countingReader(stream io.Reader) io.Reader {
	return oci.ReaderFunc(func(p []byte) (int, error) {
		n, err := stream.Read(p)
		if over := b.countUnpacked(int64(n)); over != nil {
			return n, over
		}
		return n, err
	})
}
