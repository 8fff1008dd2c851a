package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/cli"
)

// TestWatchingBesideAnImage saves a mistake while the command watches, and interrupts it.
// The release beside it is an image, which is pulled for the first look only.
func TestWatchingBesideAnImage(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: default}\n"
	pushed, _ := push(t, map[string]string{
		"release-manifests/0000_50_web_01.yaml": good,
		"release-manifests/release-metadata":    `{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`,
		"release-manifests/image-references":    `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`,
	})
	for name, flags := range map[string][]string{
		"as the release before":       {"--previous"},
		"as that of a component":      {"--component", "web", "--into"},
		"as both, and other versions": {"--release-version", "1.3.0", "--component", "web", "--into"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			save := func(file, text string) {
				if err := errors.Join(os.MkdirAll("own", 0o755), os.WriteFile("own/"+file, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			save("0000_50_web_01.yaml", good)
			ref, pulls := counted(t, pushed)
			args := append([]string{"lint", "own", "--watch", "--insecure"}, append(flags, ref)...)
			await, interrupt := command(t, args)
			await(`watching for changes`)
			if pulls.Load() != 1 {
				t.Errorf("it is pulled %d times for the first look", pulls.Load())
			}
			save("0000_50_web_02.yaml", strings.Replace(good, "web", "bad, annotations: {release.openshift.io/deleted: 'true'}", 1))
			await(`^own/0000_50_web_02.yaml:3:.* error: .*\[delete-misspelt\]$`)
			await(` left \(\d+ ms\)$`)
			if code, problems := interrupt(); code != 0 || strings.Contains(problems, "runlevel:") {
				t.Errorf("interrupted, it ends with %d: %s", code, problems)
			}
			if pulls.Load() != 1 {
				t.Errorf("it is pulled %d times", pulls.Load())
			}
		})
	}
}

// counted is an image by way of a server that counts how often it is pulled.
func counted(t *testing.T, ref string) (string, *atomic.Int32) {
	t.Helper()
	host, rest, _ := strings.Cut(ref, "/")
	var pulls atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/manifests/v1") && r.Method == http.MethodGet {
			pulls.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/" + rest, &pulls
}

// command runs a command that prints into a pipe. Await reads on to a line, and interrupt
// ends the command.
func command(t *testing.T, args []string) (await func(pattern string), interrupt func() (code int, problems string)) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	out, in := io.Pipe()
	var problems bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, args, cli.Streams{Out: in, Err: &problems})
		in.Close()
	}()
	t.Cleanup(func() {
		cancel()
		out.Close()
	})
	printed := bufio.NewScanner(out)
	await = func(pattern string) {
		t.Helper()
		var seen []string
		for wanted := regexp.MustCompile(pattern); printed.Scan(); {
			if seen = append(seen, printed.Text()); wanted.MatchString(printed.Text()) {
				return
			}
		}
		t.Fatalf("no line is like %q:\n%s", pattern, strings.Join(seen, "\n"))
	}
	interrupt = func() (int, string) {
		cancel()
		for printed.Scan() {
			continue // the writer does not wait for a reader
		}
		return <-ended, problems.String()
	}
	return await, interrupt
}
