package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra/doc"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/tools/release/packages"
)

const (
	module = "github.com/runlevel/runlevel"
	home   = "https://" + module
)

// programsFolder is the folder of the built programs.
const programsFolder = "programs"

// programs returns the folder of the programs for the platform of an archive.
func (d *draft) programs(system, processor string) string {
	return filepath.Join(d.scratch, programsFolder, system+"-"+processor)
}

// buildPrograms builds the programs of each platform: runlevel, and for Linux also the program of the image.
func buildPrograms(ctx context.Context, d *draft) error {
	for _, platform := range d.platforms {
		system, processor, _ := strings.Cut(platform, "/")
		mains := "./cmd/runlevel"
		if system == "linux" {
			mains = "./cmd/..."
		}
		fmt.Fprintf(os.Stderr, "        %s\n", platform)
		linked := fmt.Sprintf("-s -w -X %[1]s/internal/text/buildinfo.Version=%[2]s "+
			"-X %[1]s/internal/text/buildinfo.Commit=%[3]s", module, d.version, d.commit)
		// Without buildvcs, the bytes don't depend on tags.
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-buildvcs=false",
			"-ldflags", linked, "-o", d.programs(system, processor)+string(filepath.Separator), mains)
		command.Dir, command.Stdout, command.Stderr = d.source, os.Stderr, os.Stderr
		command.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor)
		if err := command.Run(); err != nil {
			return fmt.Errorf("go build for %s: %w", platform, err)
		}
	}
	return nil
}

// toolchain returns the version of Go that builds releases, such as go1.26.8: the one of the sandbox's programs.
func toolchain() string {
	_, values := binaries.Archives()
	return values["go"]
}

// useOwnSettings replaces the settings of Go that would change what it builds, for all commands that this process runs.
// Those of caches and of the module proxy remain, also where they are in the file of the user.
func useOwnSettings(ctx context.Context) error {
	command := exec.CommandContext(ctx, "go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GONOPROXY",
		"GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOAUTH")
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	values := map[string]string{
		"GOENV": "off", "GOTOOLCHAIN": toolchain(), "GOWORK": "off", "GOFLAGS": "", "GOEXPERIMENT": "",
		"GOFIPS140": "off", "GOAMD64": "v1", "GOARM64": "v8.0", "GODEBUG": "", "GOOS": "", "GOARCH": "",
		"CGO_ENABLED": "0",
	}
	err = json.Unmarshal(text, &values)
	for name, value := range values {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return err
}

// packArchives packs the command line of each platform with its completions, man pages, licence and README.
func packArchives(_ context.Context, d *draft) error {
	shared := filepath.Join(d.scratch, "shared")
	if err := d.writeHelp(shared); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		if err := copyFile(filepath.Join(shared, name), filepath.Join(d.source, name)); err != nil {
			return err
		}
	}
	for _, platform := range d.platforms {
		system, processor, _ := strings.Cut(platform, "/")
		name, suffix := "runlevel", ".tar.gz"
		if system == "windows" {
			name, suffix = "runlevel.exe", ".zip"
		}
		packed := packages.Archive{
			OS: system, Arch: processor, File: fmt.Sprintf("runlevel_%s_%s_%s%s", d.version, system, processor, suffix),
			Contents: filepath.Join(d.scratch, "contents", system+"-"+processor),
		}
		path, program := filepath.Join(d.folder, packed.File), filepath.Join(packed.Contents, name)
		err := errors.Join(os.CopyFS(packed.Contents, os.DirFS(shared)),
			copyFile(program, filepath.Join(d.programs(system, processor), name)),
			os.Chmod(program, 0o755), writeArchive(path, packed.Contents, d.time))
		if err == nil {
			packed.SHA256, err = sumFile(path)
		}
		if err != nil {
			return err
		}
		d.archives = append(d.archives, packed)
	}
	return nil
}

// writePackages writes the files by which users install the command line.
func writePackages(ctx context.Context, d *draft) error {
	return packages.Write(ctx, d.folder, packages.Release{
		Version: d.version, Time: d.time, Downloads: home + "/releases/download/" + d.version, Key: d.public,
		Source: d.source, Archives: d.archives,
	})
}

// writeHelp writes the completions of shells and the man pages.
func (d *draft) writeHelp(folder string) error {
	pages := filepath.Join(folder, "man", "man1")
	completions := filepath.Join(folder, "completions")
	if err := errors.Join(os.MkdirAll(pages, 0o755), os.MkdirAll(completions, 0o755)); err != nil {
		return err
	}
	root := cli.NewRoot(core.Streams{})
	root.DisableAutoGenTag = true // it has today's date
	if err := errors.Join(root.GenBashCompletionFileV2(filepath.Join(completions, "runlevel.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "_runlevel")),
		root.GenFishCompletionFile(filepath.Join(completions, "runlevel.fish"), true),
		root.GenPowerShellCompletionFileWithDesc(filepath.Join(completions, "runlevel.ps1"))); err != nil {
		return err
	}
	return doc.GenManTree(root, &doc.GenManHeader{
		Section: "1", Date: &d.time, Source: "Runlevel " + d.version, Manual: "Runlevel Manual",
	}, pages)
}

// runlevel runs the command line of this module, and returns its output. Warnings are only shown if it fails.
func runlevel(ctx context.Context, arguments ...string) ([]byte, error) {
	var out, warnings bytes.Buffer
	if code := cli.Run(ctx, arguments, core.Streams{In: os.Stdin, Out: &out, Err: &warnings}); code != 0 {
		return nil, fmt.Errorf("runlevel %s: exit code %d\n%s", strings.Join(arguments, " "), code, &warnings)
	}
	return out.Bytes(), nil
}

func copyFile(target, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return os.WriteFile(target, content, 0o644)
}
