package updates

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/cli/core"
)

// graphFolder writes graph data with an update that halts at the first failure.
func graphFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	image := "\nimage: registry.example/shop@sha256:" + strings.Repeat("a", 64) + "\n"
	for name, text := range map[string]string{
		"version":              "1.1.0\n",
		"channels/stable.yaml": "name: stable\nversions: [1.4.0, 1.4.1]\n",
		"releases/1.4.0.yaml":  "version: 1.4.0" + image,
		"releases/1.4.1.yaml":  "version: 1.4.1\nprevious: [1.4.0]" + image,
		"phases/1.4.1.yaml":    "to: 1.4.1\nmaxFailures: 0\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestServeHaltsAndBuildHonorsIt sends a failure to a service, ends it, and builds static files.
func TestServeHaltsAndBuildHonorsIt(t *testing.T) {
	folder := graphFolder(t)
	reports, token := filepath.Join(t.TempDir(), "reports.jsonl"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	logged, writer := io.Pipe()
	command := newServe(core.Streams{Err: writer})
	command.SetArgs([]string{folder, "--listen", "127.0.0.1:0", "--reports", reports, "--report-token-file", token})
	ended := make(chan error)
	go func() { ended <- command.ExecuteContext(ctx) }()
	lines := bufio.NewScanner(logged)
	lines.Scan()
	_, address, _ := strings.Cut(lines.Text(), " at ")
	go func() { _, _ = io.Copy(io.Discard, logged) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/reports", strings.NewReader(
		`{"id": "0123456789abcdef", "version": "1.4.1", "condition": "Failed", "time": "2026-12-01T08:00:00Z"}`))
	if err != nil {
		t.Fatalf("%s: %v", lines.Text(), err)
	}
	request.SetBasicAuth("runlevel", "secret")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		t.Error(answer.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(folder, "halts.yaml")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err) // the service may have halted it before its end; now the verb build has to
	}
	out := t.TempDir()
	build := newBuild(core.Streams{Out: io.Discard, Err: io.Discard})
	build.SetArgs([]string{folder, "--out", filepath.Join(out, "updates"), "--reports", reports})
	if err := build.Execute(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "updates/stable/amd64.json"))
	if err != nil || !strings.Contains(string(text), `"halt":"1 cluster failed, more than maxFailures 0`) {
		t.Errorf("%s %v", text, err)
	}
	halts, err := os.ReadFile(filepath.Join(folder, "halts.yaml"))
	if err != nil || strings.Count(string(halts), "\n") != 1 {
		t.Errorf("%s %v", halts, err)
	}
}

func TestServeRefuses(t *testing.T) {
	folder := graphFolder(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"pass both --tls-cert and --tls-key, or none": {folder, "--tls-cert", "x"},
		"--report-token-file needs --reports":         {folder, "--report-token-file", "x"},
		"is empty":                                    {folder, "--report-token-file", empty, "--reports", "x"},
		"no such file":                                {folder + "/none"},
		"--listen 256.0.0.1:1":                        {folder, "--listen", "256.0.0.1:1"},
	} {
		command := newServe(core.Streams{Err: io.Discard})
		command.SilenceErrors, command.SilenceUsage = true, true
		command.SetArgs(args)
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
