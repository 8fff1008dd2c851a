package loader

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/release/settings"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Settings returns the settings of an open release. An applied version has none: its values include those of its
// settings.
func Settings(release *source.Release) (settings.FolderSettings, error) {
	if release.Values != nil || release.Kind == source.File || release.Kind == source.Input {
		return settings.FolderSettings{}, nil
	}
	return settings.Read(release.FS)
}

// withSettings returns the options with the settings in the place of unset options. The second result has only the
// options from the settings.
func (o Options) withSettings(s settings.FolderSettings) (Options, Options, error) {
	taken := Options{}
	take := &taken.Payload.Filter
	set := o.Payload
	o.Payload.Name, o.Payload.Version = cmp.Or(set.Name, s.Name), cmp.Or(set.Version, s.Version)
	o.Payload.Namespace = cmp.Or(set.Namespace, s.Namespace)
	if set.Filter.Profile == "" {
		take.Profile = s.Profile
	}
	if set.Filter.FeatureSet == "" {
		take.FeatureSet = s.FeatureSet
	}
	if set.Filter.Exclude == "" {
		take.Exclude = s.Exclude
	}
	if set.Filter.Capabilities == nil && s.Capabilities != nil {
		capabilities, err := payload.ParseCapabilities(strings.Join(s.Capabilities, ","))
		if err != nil {
			return o, taken, s.Problem("capabilities", "%v", err)
		}
		take.Capabilities, o.Payload.Filter.Capabilities = capabilities, capabilities
	}
	if set.Filter.FeatureGates == nil {
		o.Payload.Filter.FeatureGates = s.FeatureGates
	}
	if len(o.Unmanaged) == 0 {
		for _, text := range s.Unmanaged {
			selector, err := ParseSelector(text)
			if err != nil {
				return o, taken, s.Problem("unmanaged", "%v", err)
			}
			taken.Unmanaged = append(taken.Unmanaged, selector)
		}
		o.Unmanaged = taken.Unmanaged
	}
	filter := &o.Payload.Filter
	filter.Profile, filter.FeatureSet = cmp.Or(filter.Profile, take.Profile), cmp.Or(filter.FeatureSet, take.FeatureSet)
	filter.Exclude = cmp.Or(filter.Exclude, take.Exclude)
	return o, taken, nil
}

// fieldsOfFilters are the fields of settings, by the filters that Check names.
var fieldsOfFilters = map[string]string{string(payload.ByFeatureSet): "featureSet"}

// checkSettings refuses settings that fit nothing in the release.
func (o Options) checkSettings(s settings.FolderSettings, read *payload.Payload, problems []payload.Problem) error {
	if slices.ContainsFunc(problems, func(p payload.Problem) bool { return !p.IsWarning() }) {
		return nil // the matching objects may be in files that can't be read
	}
	err := o.Check(read)
	if err == nil {
		return nil
	}
	filter, why, _ := strings.Cut(err.Error(), ": ")
	field, object, _ := strings.Cut(filter, " ")
	if object != "" {
		why = object + ": " + why
	}
	return s.Problem(cmp.Or(fieldsOfFilters[field], field), "%s", why)
}

// Named adds the source to the error of a release whose settings can't be used.
func Named(ref string, err error) error {
	if problems := (payload.Problems{}); errors.As(err, &problems) && !errors.As(err, new(*RefusedError)) {
		return &RefusedError{ref, err}
	}
	return err
}

// isLocal reports whether a release is a folder on this machine.
func isLocal(release *source.Release) bool { return release.Kind == source.Directory }

// KeptBy returns the settings on the files that a cluster keeps, and a warning if the release is not a folder on this
// machine: an archive or image does not decide which of its files a cluster keeps.
func KeptBy(release *source.Release) (files string, historyMax int, warning string, err error) {
	s, err := Settings(release)
	if err != nil || isLocal(release) || s.KeepFiles == "" && s.HistoryMax == 0 {
		return s.KeepFiles, s.HistoryMax, "", err
	}
	return "", 0, fmt.Sprintf("%s: keepFiles and historyMax only count in a folder on this machine: use --keep-files "+
		"and --history-max", payload.SettingsFile), nil
}
