package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// read reads the input of lint.
func (f *lintFlags) read(ctx context.Context, ref string, progress io.Writer) (input lint.Input, paths lintPaths, err error) {
	if err := f.check(); err != nil {
		return input, paths, err
	}
	if input.Config, err = f.readConfig(); err != nil {
		return input, paths, err
	}
	if input.Baseline, err = f.baseline.read(f.format); err != nil {
		return input, paths, err
	}
	if input.Config.IsAhead() {
		warn(progress, []string{"Kubernetes " + input.Config.KubernetesVersion + " is newer than any that is known here: kinds that seem unknown may be in it, and are let pass"})
	}
	f.release.keepText = true
	paths = lintPaths{source: folderOf(ref), previous: folderOf(f.previous)}
	if f.component.into != "" {
		if paths.placed, err = f.place(ctx, ref, progress, &input); err != nil {
			return input, paths, err
		}
		paths.release, paths.previous = folderOf(f.component.into), folderOf(cmp.Or(f.previous, f.component.into))
	} else if input.Payload, input.Problems, err = f.release.parse(ctx, ref, progress); err != nil {
		return input, paths, err
	}
	if f.previous != "" {
		if input.Previous, err = f.readPrevious(ctx, progress); err != nil {
			return input, paths, err
		}
		warn(progress, warningsOfOrder(cmp.Or(f.component.into, ref), f.previous, input.Previous, input.Payload))
	}
	return input, paths, f.checkFilters(progress, input)
}

// checkFilters checks the filters of the release flags. If the release has problems, it only warns: the flags may
// refer to files that can't be read, which are findings.
func (f *lintFlags) checkFilters(progress io.Writer, input lint.Input) error {
	warnIfEmpty(progress, input.Payload)
	err := f.release.checkFilters(input.Payload, input.Previous)
	if err != nil && payload.Refuse(input.Problems) != nil {
		warn(progress, []error{err})
		return nil
	}
	return err
}

// check returns an error if the flags contradict each other.
func (f *lintFlags) check() error {
	if f.previousVersion != "" && f.previous == "" && f.component.into == "" {
		return misusef("--previous-version is for --previous")
	}
	if err := checkVersion("previous-version", f.previousVersion); err != nil {
		return err
	}
	return f.component.check(&f.release)
}

// place puts a component into a release, which is also the previous release, unless
// --previous is set.
func (f *lintFlags) place(ctx context.Context, ref string, progress io.Writer, input *lint.Input) (*placedComponent, error) {
	var released *releaseFlags
	if f.previous == "" {
		flags := f.release
		flags.version = f.previousVersion
		released = &flags
	}
	p, err := f.component.place(ctx, ref, &f.release, released, progress)
	if err != nil {
		return nil, err
	}
	input.Payload, input.Problems, input.Previous, input.Change = p.after, p.afterProblems, p.released, p.change()
	return p, nil
}

// readPrevious reads the previous release. Problems in it are errors: objects that can't
// be read would seem to be new.
func (f *lintFlags) readPrevious(ctx context.Context, progress io.Writer) (*payload.Payload, error) {
	before := f.release
	before.version, before.image, before.imagesFrom, before.updatingFrom, before.images = f.previousVersion, "", "", "", nil
	read, problems, err := before.parse(ctx, f.previous, progress)
	if err != nil {
		return nil, err
	}
	if err := payload.Refuse(tolerateDuplicates(problems)); err != nil {
		return nil, refused("--previous "+f.previous, err)
	}
	return read, nil
}

// warningsOfOrder returns warnings about two releases that are the same, or in the wrong order.
func warningsOfOrder(ref, previousRef string, previous, next *payload.Payload) []string {
	if previous.Hash == next.Hash {
		return []string{fmt.Sprintf("%s and %s hold the same manifests: there is nothing to update", previousRef, ref)}
	}
	from, err := version.ParseSemantic(previous.Version)
	if err != nil {
		return nil
	}
	to, err := version.ParseSemantic(next.Version)
	if err == nil && to.LessThan(from) {
		return []string{fmt.Sprintf("%s is %s, which is older than %s of %s: are they swapped?", ref, next.Version, previous.Version, previousRef)}
	}
	return nil
}

// readConfig reads the configuration. Flags override it.
func (f *lintFlags) readConfig() (lint.Config, error) {
	file := f.config
	if !f.isConfigured {
		file = lintConfigFile
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !f.isConfigured {
		err = nil
	}
	if err != nil {
		return lint.Config{}, misusef("the configuration of lint: %w", err)
	}
	config, err := lint.ParseConfig(file, text)
	if err != nil {
		return config, misuse(err)
	}
	if config.Severities == nil {
		config.Severities = map[string]lint.Severity{}
	}
	for _, id := range f.off {
		if !slices.Contains(ruleIDs(), id) {
			return config, misusef("--off: there is no rule %q: \"runlevel explain\" lists them", id)
		}
		config.Severities[id] = lint.Off
	}
	if f.kubernetes != "" {
		if _, err := version.ParseGeneric(f.kubernetes); err != nil {
			return config, misusef("--kubernetes-version: %q is not a version such as 1.34", f.kubernetes)
		}
		config.KubernetesVersion = f.kubernetes
	}
	return config, nil
}
