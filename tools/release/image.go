package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
	"github.com/runlevel/runlevel/internal/release/build"
)

// payloadSuffix is the end of the repository of the payload, after the image's.
const payloadSuffix = "-release"

// imageArchive returns the name of the OCI archive with the image of the programs.
func (d *draft) imageArchive() string { return "runlevel-image_" + d.version + ".tar" }

// payloadArchive returns the name of the OCI archive with the release of operator and machine controller.
func (d *draft) payloadArchive() string { return "runlevel-release_" + d.version + ".tar" }

// buildImage builds the image of the programs, for the platforms with Linux.
func buildImage(ctx context.Context, d *draft) (err error) {
	folder := filepath.Join(d.scratch, "image")
	arguments := []string{
		"run", "./image", "-source", d.source, "-programs", filepath.Join(d.scratch, programsFolder), "-o", folder,
	}
	for name, value := range map[string]string{
		"title": "runlevel", "description": "Apply release payloads to any Kubernetes cluster",
		"url": home, "source": home, "documentation": home + "/tree/main/docs",
		"licenses": "Apache-2.0", "vendor": "The Runlevel authors",
		"version": d.version, "revision": d.commit, "created": d.time.Format(time.RFC3339),
	} {
		arguments = append(arguments, "-label", "org.opencontainers.image."+name+"="+value)
	}
	for _, platform := range d.platforms {
		if strings.HasPrefix(platform, "linux/") {
			arguments = append(arguments, platform)
		}
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir, command.Stdout, command.Stderr = filepath.Join(d.source, "tools"), os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("go run ./image: %w", err)
	}
	from, err := oci.OpenLayout(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	described, err := from.Resolve(ctx, "")
	if err != nil {
		return err
	}
	target, err := oci.CreateLayout(ctx, filepath.Join(d.folder, d.imageArchive()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if _, err := copy.Copy(ctx, from, described, target, copy.Options{Tag: d.version}); err != nil {
		return err
	}
	d.digest = described.Digest.String()
	return target.Commit(ctx)
}

// imageByDigest returns the image of the programs as manifests name it.
func (d *draft) imageByDigest() string { return d.image + "@" + d.digest }

// buildPayload builds the release of operator and machine controller with "runlevel release build". The image may not
// be in its registry yet, so its digest is taken from a lock.
func buildPayload(ctx context.Context, d *draft) error {
	folder := filepath.Join(d.scratch, "payload")
	for _, component := range []struct{ name, source string }{
		{"operator", "install"}, {"machine-controller", "manifests"},
	} {
		target := filepath.Join(folder, component.name)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		files, err := d.manifestFiles(component.source, "0000_*.yaml")
		if err != nil {
			return err
		}
		for _, file := range append(files, filepath.Join(d.source, component.source, "image-references")) {
			if err := copyFile(filepath.Join(target, filepath.Base(file)), file); err != nil {
				return err
			}
		}
	}
	config := fmt.Sprintf(`name: runlevel
version: %s
components:
- {name: operator, source: ./operator}
- {name: machine-controller, source: ./machine-controller}
images: {runlevel: %s}
`, strings.TrimPrefix(d.version, "v"), d.imageByDigest())
	file, lockFile := filepath.Join(folder, build.ConfigFile), filepath.Join(folder, "release.lock")
	image := build.ResolvedImage{From: d.imageByDigest(), Image: d.imageByDigest()}
	lock := build.Lock{Images: map[string]build.ResolvedImage{"runlevel": image}}
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o644), lock.Write(lockFile)); err != nil {
		return err
	}
	output, err := runlevel(ctx, "release", "build", file, "--from-lock", lockFile, "-o", "json",
		"--to", filepath.Join(d.folder, d.payloadArchive()))
	if err != nil {
		return err
	}
	return json.Unmarshal(output, &d.payload)
}

// signImages signs both images with "runlevel release sign".
func signImages(ctx context.Context, d *draft) error {
	if d.isUnsigned {
		return nil
	}
	for archive, identity := range map[string]string{
		d.imageArchive():   d.image + ":" + d.version,
		d.payloadArchive(): d.image + payloadSuffix + ":" + strings.TrimPrefix(d.version, "v"),
	} {
		if _, err := runlevel(ctx, "release", "sign", filepath.Join(d.folder, archive), "--key", d.key, "--identity",
			identity); err != nil {
			return err
		}
	}
	return nil
}
