// Package loader reads a release from its source into a payload, for a command or a controller: it opens
// the source, selects manifests by the filters, and keeps the capabilities of the previous release enabled.
//
// Load returns a release that can be applied, and Parse the readable part of a broken one. Check, in
// filters.go, refuses filters that match nothing in the release.
package loader

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options are the options for reading a release, and the filters of its manifests.
type Options struct {
	Source  source.Options
	Payload payload.Options
	// Unmanaged are objects to leave out, beside those of Payload.Filter.Overrides.
	Unmanaged []Selector
	// Before is the previous release: capabilities stay enabled that the manifests they share need.
	Before *payload.Payload
	// UpdatingFrom is the source of Before, if Before is nil.
	UpdatingFrom string
}

// A RefusedError is a release that can't be used, with all its problems.
type RefusedError struct {
	Source   string
	Problems error // payload.Problems
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %v", e.Source, e.Problems) }
func (e *RefusedError) Unwrap() error { return e.Problems }

// Load reads a release that can be applied, and returns the warnings about it. A release with problems
// is a RefusedError.
func Load(ctx context.Context, ref string, options Options) (*payload.Payload, []payload.Problem, error) {
	release, problems, err := Parse(ctx, ref, options)
	if err != nil {
		return nil, nil, err
	}
	if err := payload.Refuse(problems); err != nil {
		return nil, nil, &RefusedError{ref, err}
	}
	return release, problems, nil
}

// Parse reads the readable part of a release, and returns its problems.
func Parse(ctx context.Context, ref string, options Options) (_ *payload.Payload, _ []payload.Problem, err error) {
	release, err := source.Open(ctx, ref, options.Source)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	read, problems, err := ParseOpened(ctx, release, options)
	return read, problems, Named(ref, err)
}

// ParseOpened is Parse for a release whose source is open. If the options leave a setting empty, the setting of the
// release counts. Invalid settings are an error, since they determine the content of the release; unknown ones are
// problems with Payload.LeaveOutNewer. A version that was applied is read with its settings from then, unless the
// options set others.
func ParseOpened(ctx context.Context, release *source.Release,
	options Options) (*payload.Payload, []payload.Problem, error) {
	own, err := Settings(release)
	var unknown payload.Problems
	if err != nil && !(options.Payload.LeaveOutNewer && errors.As(err, &unknown) && unknown.AreNewer()) {
		return nil, nil, err
	}
	options, taken, err := options.withSettings(own)
	if err != nil {
		return nil, nil, err
	}
	read, problems, err := parseAs(ctx, release, options)
	if err == nil {
		problems = append(problems, unknown...)
		err = taken.checkSettings(own, read, problems)
	}
	if err != nil {
		return nil, nil, err
	}
	return read, problems, nil
}

// parseAs is ParseOpened for options that have the settings of the release.
func parseAs(ctx context.Context, release *source.Release,
	options Options) (*payload.Payload, []payload.Problem, error) {
	reading, err := options.withValues(release.Values)
	if err != nil {
		return nil, nil, err
	}
	reading.ReleaseImage = cmp.Or(reading.ReleaseImage, release.Image)
	read, problems, err := payload.Parse(ctx, release.FS, reading)
	if err == nil && len(options.Unmanaged) > 0 { // selectors may leave out what only the release can resolve
		reading.Filter.Overrides = append(slices.Clip(reading.Filter.Overrides), overrides(options.Unmanaged, read)...)
		read, problems, err = payload.Parse(ctx, release.FS, reading)
	}
	if err == nil && (options.UpdatingFrom != "" || options.Before != nil) {
		var enabled []configv1.ClusterVersionCapability
		if enabled, err = implicitlyEnabled(ctx, read, options); err == nil && len(enabled) > 0 {
			reading.Filter = reading.Filter.WithCapabilities(enabled)
			read, problems, err = payload.Parse(ctx, release.FS, reading)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return read, problems, nil
}

// implicitlyEnabled returns the capabilities that stay enabled because the previous release has manifests
// with them. It reads the previous release if it was not read yet, and fails if this release has problems.
func implicitlyEnabled(ctx context.Context, target *payload.Payload,
	options Options) ([]configv1.ClusterVersionCapability, error) {
	if options.Before != nil {
		return payload.ImplicitlyEnabled(options.Before, target), nil
	}
	filter := target.Filter
	filter.MajorVersion = options.Payload.Filter.MajorVersion // major version of the previous release, unless it is set
	from, problems, err := Parse(ctx, options.UpdatingFrom,
		Options{Source: options.Source, Payload: payload.Options{Filter: filter}})
	if err != nil {
		return nil, err
	}
	problems = slices.DeleteFunc(problems, func(p payload.Problem) bool { return p.Cause == payload.Duplicate })
	if err := payload.Refuse(problems); err != nil {
		return nil, &RefusedError{options.UpdatingFrom, err}
	}
	return payload.ImplicitlyEnabled(from, target), nil
}

// Values returns, as JSON, the options that a later read of the same files needs for the same result.
func Values(read *payload.Payload) ([]byte, error) { return json.Marshal(read.Options()) }

// withValues returns the options for reading an applied version: the values with which it was read, overridden by the
// options that are set. A release without values was never applied: its options are returned unchanged.
func (o Options) withValues(values []byte) (payload.Options, error) {
	set := o.Payload
	if values == nil {
		return set, nil
	}
	var before payload.Options
	decoder := json.NewDecoder(bytes.NewReader(values))
	decoder.DisallowUnknownFields() // one may be a filter
	if err := decoder.Decode(&before); err != nil {
		return before,
			fmt.Errorf("the values with which it was read are damaged, or written by a newer runlevel, which "+
				"can read them: %w", err)
	}
	before.Name, before.Version = cmp.Or(set.Name, before.Name), cmp.Or(set.Version, before.Version)
	before.ReleaseImage = cmp.Or(set.ReleaseImage, before.ReleaseImage)
	before.KeepText, before.LeaveOutNewer = set.KeepText, set.LeaveOutNewer
	before.Namespace = cmp.Or(set.Namespace, before.Namespace)
	if set.Release != nil {
		before.Release = set.Release
	}
	before.Filter.Exclude, before.Filter.Profile = cmp.Or(set.Filter.Exclude, before.Filter.Exclude),
		cmp.Or(set.Filter.Profile, before.Filter.Profile)
	before.Filter.FeatureSet = cmp.Or(set.Filter.FeatureSet, before.Filter.FeatureSet)
	before.Filter.MajorVersion = cmp.Or(set.Filter.MajorVersion, before.Filter.MajorVersion)
	if set.Filter.FeatureGates != nil {
		before.Filter.FeatureGates = set.Filter.FeatureGates
	}
	if set.Filter.Capabilities != nil {
		before.Filter.Capabilities = set.Filter.Capabilities
	}
	if len(o.Unmanaged) > 0 || len(set.Filter.Overrides) > 0 {
		before.Filter.Overrides = set.Filter.Overrides
	}
	return before, nil
}
