package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/runlevel/runlevel"

// buildPrograms builds the programs of each platform into SCRATCH/OS-ARCH: runlevel, and for Linux also the program of
// the image.
func buildPrograms(ctx context.Context, d *draft) error {
	for _, platform := range strings.Split(d.platforms, ",") {
		system, processor, _ := strings.Cut(platform, "/")
		mains := "./cmd/runlevel"
		if system == "linux" {
			mains = "./cmd/..."
		}
		fmt.Fprintf(os.Stderr, "        %s\n", platform)
		folder := filepath.Join(d.scratch, system+"-"+processor) + string(filepath.Separator)
		linked := fmt.Sprintf("-s -w -X %[1]s/internal/text/buildinfo.Version=%[2]s "+
			"-X %[1]s/internal/text/buildinfo.Commit=%[3]s", module, d.version, d.commit)
		// Without buildvcs, the bytes don't depend on tags, and a source archive gives the same ones.
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", linked, "-o",
			folder, mains)
		command.Dir, command.Stdout, command.Stderr = d.source, os.Stderr, os.Stderr
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+system, "GOARCH="+processor)
		if err := command.Run(); err != nil {
			return fmt.Errorf("go build for %s: %w", platform, err)
		}
	}
	return nil
}
