package files

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// zeros is an endless source of bytes that are compressed well.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestNoMemoryIsTakenForAnotherDigest reads 25 kB that can be decompressed to as much as a copy may have. It is not
// parallel: it measures the allocations of the process.
func TestNoMemoryIsTakenForAnotherDigest(t *testing.T) {
	var packed bytes.Buffer
	compressed, err := zstd.NewWriter(&packed, zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(compressed, zeros{}, 2*maxUnpacked); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = unpack([][]byte{packed.Bytes()}, "sha256:"+strings.Repeat("0", 64))
	runtime.ReadMemStats(&after)
	if err == nil || !strings.HasPrefix(err.Error(), "its content has digest sha256:") {
		t.Errorf("the error is %v", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
		t.Errorf("%d bytes take %d MiB", packed.Len(), got>>20)
	}
}
