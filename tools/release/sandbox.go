package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// addSandboxPrograms adds the archives of the sandbox's programs, if the source names this release as the one that has
// them. Archives in bin/programs with the digests of the source are not built again: a build takes minutes.
func addSandboxPrograms(ctx context.Context, d *draft) error {
	_, values := binaries.Archives()
	if d.version != values["release"] || d.isSnapshot {
		fmt.Fprintf(os.Stderr, "        none: the sandbox of this source uses those of %s\n", values["release"])
		return nil
	}
	built := filepath.Join(d.source, "bin", "programs")
	command := exec.CommandContext(ctx, "go", "run", "./archives", "-release", d.version, "-o", built)
	command.Dir, command.Stdout, command.Stderr = filepath.Join(d.source, "tools", "release"), os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return err
	}
	for name := range values {
		if !strings.HasSuffix(name, ".tar.gz") {
			continue
		}
		archive, err := os.ReadFile(filepath.Join(built, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(d.folder, name), archive, 0o644); err != nil {
			return err
		}
	}
	return nil
}
