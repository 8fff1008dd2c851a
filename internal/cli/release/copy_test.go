package release

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/reason"
)

func TestAnInterruptedPullContinues(t *testing.T) {
	const layer = 1 << 20
	ctx, interrupt := context.WithCancelCause(t.Context())
	var sent atomic.Int64
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		images.ServeHTTP(stoppingWriter{w, func(n int) {
			if sent.Add(int64(n)) > layer+layer/2 {
				interrupt(reason.ErrInterrupted)
			}
		}}, request)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	tag, err := name.NewTag(host+"/shop:1.4.0", name.Insecure)
	must(t, err)
	image, err := random.Image(layer, 2)
	must(t, err)
	must(t, remote.Write(tag, image))
	folder := filepath.Join(t.TempDir(), "layout")
	pull := func(ctx context.Context) (string, error) {
		var out, progress bytes.Buffer
		command := newPull(core.Streams{Out: &out, Err: &progress})
		command.SetArgs([]string{tag.Name(), folder, "--insecure"})
		command.SilenceErrors, command.SilenceUsage = true, true
		err := command.ExecuteContext(ctx)
		if want := "copying " + tag.Name() + " to " + folder + ":1.4.0\n"; progress.String() != want {
			t.Errorf("progress is %q, not %q", progress.String(), want)
		}
		return out.String(), err
	}
	out, err := pull(ctx)
	const want = "interrupted: run the command again to continue the copy"
	if out != "" || err == nil || err.Error() != want {
		t.Errorf("prints %q, fails with %v", out, err)
	}
	if core.ExitCode(err, io.Discard) != 1 {
		t.Errorf("exits with %d", core.ExitCode(err, io.Discard))
	}
	digest, err := image.Digest()
	must(t, err)
	out, err = pull(t.Context())
	must(t, err)
	if !strings.HasPrefix(out, "copied ") || !strings.HasSuffix(out, "\ndigest "+digest.String()+"\n") {
		t.Errorf("prints %q", out)
	}
}

// A stoppingWriter reports what it writes, in small parts.
type stoppingWriter struct {
	http.ResponseWriter
	report func(n int)
}

func (s stoppingWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		var n int
		n, err = s.ResponseWriter.Write(p[:min(len(p), 64<<10)])
		s.report(n)
		written, p = written+n, p[n:]
	}
	return written, err
}
