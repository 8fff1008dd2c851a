package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// otherSettings are settings of Go that change what it builds, or prevent it, beside a workspace.
var otherSettings = map[string]string{
	"GOAMD64": "v3", "GOARM64": "v9.0", "GOFIPS140": "latest", "GOEXPERIMENT": "nodwarf5", "GOFLAGS": "-tags=other",
	"CGO_ENABLED": "1", "GOOS": "plan9",
}

func useOtherSettings(t *testing.T) {
	for name, value := range otherSettings {
		t.Setenv(name, value)
	}
	workspace := filepath.Join(t.TempDir(), "go.work")
	create(t, workspace, []byte("go 1.26.0\n")) // Runlevel is not in it
	t.Setenv("GOWORK", workspace)
}

// TestSettingsOfTheMachine reads the settings with which a release is built, on a machine with others.
func TestSettingsOfTheMachine(t *testing.T) {
	text, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	proxy := strings.TrimSpace(string(text))
	file := filepath.Join(t.TempDir(), "env") // of go env -w
	create(t, file, []byte("GOEXPERIMENT=nodwarf5\nGOFLAGS=-tags=other\nGONOSUMDB=private.example\n"))
	t.Setenv("GOENV", file)
	useOtherSettings(t)
	t.Setenv("GOEXPERIMENT", "") // the file has it
	t.Setenv("GOFLAGS", "")
	if err := useOwnSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if used := os.Getenv("GOTOOLCHAIN"); used != toolchain() {
		t.Errorf("a release is built with GOTOOLCHAIN=%s, want %s", used, toolchain())
	}
	t.Setenv("GOTOOLCHAIN", "local") // which needs no network
	if text, err = exec.Command("go", "env", "-json").Output(); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"GOFIPS140": "off", "GOEXPERIMENT": "", "GOWORK": "off", "GOFLAGS": "",
		"GOPROXY": proxy, "GONOSUMDB": "private.example", "CGO_ENABLED": "0", "GOOS": got["GOHOSTOS"],
	} {
		if got[name] != want {
			t.Errorf("a release is built with %s=%s, want %s", name, got[name], want)
		}
	}
	for name, want := range map[string]string{"GOAMD64": "v1", "GOARM64": "v8.0"} {
		if value, isSet := got[name]; isSet && value != want {
			t.Errorf("a release is built with %s=%s, want %s", name, value, want)
		}
	}
}

// TestReplace replaces an earlier release, and keeps what is there if the new one can't be renamed or is not wanted.
func TestReplace(t *testing.T) {
	folder := t.TempDir()
	d := &draft{options: options{output: filepath.Join(folder, "release")}, folder: filepath.Join(folder, "new")}
	create(t, filepath.Join(d.output, "file"), []byte("earlier"))
	content := func() string {
		text, _ := os.ReadFile(filepath.Join(d.output, "file"))
		return string(text)
	}
	if err := d.replace(t.Context(), filepath.Join(folder, "earlier")); err == nil || content() != "earlier" {
		t.Errorf("without a new release: %v, and the folder has %q", err, content())
	}
	create(t, filepath.Join(d.folder, "file"), []byte("new"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.replace(ctx, filepath.Join(folder, "earlier")); err == nil || content() != "earlier" {
		t.Errorf("after an interrupt: %v, and the folder has %q", err, content())
	}
	if err := d.replace(t.Context(), filepath.Join(folder, "earlier")); err != nil || content() != "new" {
		t.Errorf("%v, and the folder has %q", err, content())
	}
}
