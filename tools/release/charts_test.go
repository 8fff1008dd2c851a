package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCharts(t *testing.T) {
	d := &draft{
		options: options{version: "v0.1.0", source: filepath.Join("..", ".."), image: "registry.example/runlevel"},
		digest:  "sha256:1111", folder: t.TempDir(), scratch: t.TempDir(), time: time.Unix(0, 0),
	}
	if err := writeCharts(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"runlevel-operator", "runlevel-machines"} {
		archive := filepath.Join(d.folder, name+"-0.1.0.tgz")
		out, err := exec.CommandContext(t.Context(), "tar", "-xOzf", archive, name+"/Chart.yaml").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "image: registry.example/runlevel@sha256:1111\n") {
			t.Errorf("%s: got error %v\n%s", archive, err, out)
		}
	}
}
