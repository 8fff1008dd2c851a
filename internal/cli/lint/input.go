package lint

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

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// read reads the input of lint.
func (f *lintFlags) read(ctx context.Context, ref string,
	progress io.Writer) (input lint.Input, paths lintPaths, err error) {
	if err := f.check(); err != nil {
		return input, paths, err
	}
	if input.Config, err = f.readConfig(); err != nil {
		return input, paths, err
	}
	if input.Baseline, err = f.baseline.read(f.outputs); err != nil {
		return input, paths, err
	}
	if input.Config.IsAhead() {
		core.Warn(progress, []string{"Kubernetes " + input.Config.KubernetesVersion +
			" is newer than the versions this program knows: unknown kinds are accepted, because it may have them"})
	}
	f.release.KeepText = true
	paths = lintPaths{source: core.FolderOf(ref), previous: core.FolderOf(f.previous)}
	if f.component.Into != "" {
		if err = f.place(ctx, ref, progress, &input); err != nil {
			return input, paths, err
		}
		paths.release, paths.previous = core.FolderOf(f.component.Into),
			core.FolderOf(cmp.Or(f.previous, f.component.Into))
	} else if input.Payload, input.Problems, err = f.release.Parse(ctx, ref, progress); err != nil {
		return input, paths, err
	}
	input.Problems = append(input.Problems, signature.Problems(input.Payload)...)
	if f.previous != "" {
		if input.Previous, err = f.readPrevious(ctx, progress); err != nil {
			return input, paths, err
		}
		core.Warn(progress, warningsOfOrder(cmp.Or(f.component.Into, ref), f.previous, input.Previous, input.Payload))
	}
	return input, paths, f.checkFilters(progress, input)
}

// checkFilters checks the filters of the release flags. If the release has problems, it only warns: the flags may
// refer to files that can't be read, which are findings.
func (f *lintFlags) checkFilters(progress io.Writer, input lint.Input) error {
	core.WarnIfEmpty(progress, input.Payload)
	err := f.release.CheckFilters(input.Payload, input.Previous)
	if err != nil && payload.Refuse(input.Problems) != nil {
		core.Warn(progress, []error{err})
		return nil
	}
	return err
}

// check returns an error if the flags contradict each other.
func (f *lintFlags) check() error {
	flag, needed := "previous-version", "--previous"
	if f.isRehearsal {
		flag, needed = "old-version", "OLD"
	}
	if f.previousVersion != "" && f.previous == "" && f.component.Into == "" {
		return core.Misusef("--%s is for %s", flag, needed)
	}
	if err := core.CheckVersion(flag, f.previousVersion); err != nil {
		return err
	}
	return f.component.Check(&f.release)
}

// place puts a component into a release, which is also the previous release, unless
// --previous is set.
func (f *lintFlags) place(ctx context.Context, ref string, progress io.Writer, input *lint.Input) error {
	var released *core.ReleaseFlags
	if f.previous == "" {
		flags := f.release
		flags.Version = f.previousVersion
		released = &flags
	}
	p, err := f.component.Place(ctx, ref, &f.release, released, progress)
	if err != nil {
		return err
	}
	input.Payload, input.Problems, input.Previous = p.After, p.AfterProblems, p.Released
	input.Change = &lint.ComponentChange{Before: p.Before, Problems: p.BeforeProblems,
		Own: func(file string, origin lint.Origin) (string, bool) {
			if origin == lint.InPrevious {
				return p.Home(file), p.Had(file)
			}
			return p.Own(file)
		}}
	return nil
}

// readPrevious reads the previous release. Problems in it are errors: objects that can't
// be read would seem to be new.
func (f *lintFlags) readPrevious(ctx context.Context, progress io.Writer) (*payload.Payload, error) {
	before := f.release
	before.Version, before.Image, before.ImagesFrom, before.UpdatingFrom, before.Images = f.previousVersion, "", "", "",
		nil
	read, problems, err := before.Parse(ctx, f.previous, progress)
	if err != nil {
		return nil, err
	}
	if err := payload.Refuse(core.TolerateDuplicates(problems)); err != nil {
		return nil, core.ProblemsError("--previous "+f.previous, err)
	}
	return read, nil
}

// warningsOfOrder returns warnings about two releases that are the same, or in the wrong order.
func warningsOfOrder(ref, previousRef string, previous, next *payload.Payload) []string {
	if previous.Hash == next.Hash {
		return []string{fmt.Sprintf("%s and %s hold the same manifests: there is nothing to update", previousRef, ref)}
	}
	oldVersion, err := version.ParseSemantic(previous.Version)
	if err != nil {
		return nil
	}
	newVersion, err := version.ParseSemantic(next.Version)
	if err == nil && newVersion.LessThan(oldVersion) {
		return []string{fmt.Sprintf("%s is %s, which is older than %s of %s: are they swapped?", ref, next.Version,
			previous.Version, previousRef)}
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
		return lint.Config{}, core.Misusef("the configuration of lint: %w", err)
	}
	config, err := lint.ParseConfig(file, text)
	if err != nil {
		return config, core.Misuse(err)
	}
	if config.Severities == nil {
		config.Severities = map[string]lint.Severity{}
	}
	for _, id := range f.off {
		if !slices.Contains(ruleIDs(), id) {
			return config, core.Misusef("--off: unknown rule %q: \"runlevel explain\" lists them", id)
		}
		config.Severities[id] = lint.Off
	}
	if f.kubernetes != "" {
		if _, err := version.ParseGeneric(f.kubernetes); err != nil {
			return config, core.Misusef("--kubernetes-version: %q is not a version such as 1.34", f.kubernetes)
		}
		config.KubernetesVersion = f.kubernetes
	}
	return config, nil
}
