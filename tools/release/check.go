package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/mod/semver"
)

var platformPattern = regexp.MustCompile(`^(linux|darwin|windows)/(amd64|arm64)$`)

// check returns an error unless a release can be built, before anything is.
func check(ctx context.Context, o options) (*draft, error) {
	d := &draft{options: o}
	if o.version != semver.Canonical(o.version) || o.version == "" {
		return nil, fmt.Errorf("-version %q is not a semantic version: use one such as v0.1.0 or v0.2.0-rc.1",
			o.version)
	}
	for i, platform := range o.platforms {
		if !platformPattern.MatchString(platform) || slices.Contains(o.platforms[:i], platform) {
			return nil, fmt.Errorf("-platforms: %q is unknown or a duplicate: name platforms such as "+
				"linux/amd64,linux/arm64", platform)
		}
	}
	if !slices.ContainsFunc(o.platforms, func(p string) bool { return strings.HasPrefix(p, "linux/") }) {
		return nil, errors.New("-platforms has none with linux, which the image needs: add linux/amd64, for example")
	}
	if _, err := name.NewRepository(o.image); err != nil {
		return nil, fmt.Errorf("-image: name a repository without a tag, such as registry.example/runlevel: %w", err)
	}
	if err := d.checkFolders(); err != nil {
		return nil, err
	}
	if err := d.readCommit(ctx); err != nil {
		return nil, err
	}
	if !o.isSnapshot {
		if err := d.checkSource(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := d.notes(); err != nil {
		return nil, err
	}
	return d, d.readKey(ctx)
}

// checkFolders returns an error if the output has files that are not those of a release.
func (d *draft) checkFolders() (err error) {
	if d.output == "" {
		return errors.New("name the folder of the release by -o")
	}
	if d.source, err = filepath.Abs(d.source); err != nil {
		return err
	}
	if d.output, err = filepath.Abs(d.output); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(d.source, "cmd", "runlevel")); err != nil {
		return fmt.Errorf("-source is not the folder of the repository: %w", err)
	}
	entries, err := os.ReadDir(d.output)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("-o: name a folder: %w", err)
	}
	sums, err := os.ReadFile(filepath.Join(d.output, checksums))
	if err != nil {
		return fmt.Errorf("-o %s has files, but no release: choose another folder, or remove it", d.output)
	}
	for _, entry := range entries { // all of them are deleted when the new release is complete
		name := entry.Name()
		if !slices.Contains([]string{checksums, checksums + ".sig", publicKey}, name) &&
			!bytes.Contains(sums, []byte("  "+name+"\n")) {
			return fmt.Errorf("-o %s has %s, which is not part of a release: choose another folder, or remove it",
				d.output, name)
		}
	}
	return nil
}

// readCommit reads the commit of the source, and its time.
func (d *draft) readCommit(ctx context.Context) (err error) {
	if prefix, err := d.git(ctx, "rev-parse", "--show-prefix"); err != nil || prefix != "" {
		return fmt.Errorf("-source %s is not a clone of the repository, whose commit is needed: use git clone (%v)",
			d.source, cmp.Or(err, fmt.Errorf("it is the folder %s of another one", prefix)))
	}
	if d.commit, err = d.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = d.git(ctx, "log", "-1", "--format=%ct"); err != nil {
			return err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds: %q", seconds)
	}
	d.time = time.Unix(epoch, 0).UTC()
	return os.Setenv("SOURCE_DATE_EPOCH", seconds) // for the verbs that this process runs
}

// checkSource returns an error if the worktree is not the commit of the version.
func (d *draft) checkSource(ctx context.Context) error {
	changed, err := d.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the worktree has changes: commit them, or pass -snapshot for a trial\n%s", changed)
	}
	if tagged, err := d.git(ctx, "rev-parse", "--verify", "--quiet", "refs/tags/"+d.version+"^{commit}"); err == nil &&
		tagged != d.commit {
		return fmt.Errorf("the tag %s is at commit %s, and the worktree at %s: check out the tag, or choose another "+
			"version", d.version, tagged, d.commit)
	}
	return nil
}

// relativeLink finds links to files of the repository.
var relativeLink = regexp.MustCompile(`\]\(([\w./-]+[)#])`)

// notes returns the section of the version in CHANGELOG.md, for a page outside of the repository.
func (d *draft) notes() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(d.source, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	title := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(d.version) + `(\]| |$).*$`)
	if d.isSnapshot {
		title = regexp.MustCompile(`(?m)^## .*$`)
	}
	place := title.FindIndex(text)
	if place == nil {
		return nil, fmt.Errorf("CHANGELOG.md has no section \"## %s\": rename \"Unreleased\" to it", d.version)
	}
	section, _, _ := bytes.Cut(text[place[1]:], []byte("\n## "))
	section = relativeLink.ReplaceAll(section, []byte("]("+home+"/blob/"+d.version+"/$1"))
	return append(bytes.TrimSpace(section), '\n'), nil
}

// writeNotes writes the notes of the release.
func writeNotes(_ context.Context, d *draft) error {
	text, err := d.notes()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.folder, "release-notes.md"), text, 0o644)
}

func (d *draft) git(ctx context.Context, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, "git", append([]string{"-C", d.source}, arguments...)...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w: %s", arguments[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return strings.TrimSpace(string(output)), err
}
