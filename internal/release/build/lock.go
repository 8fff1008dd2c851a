package build

import (
	"fmt"
	"maps"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// A Lock has what a build has read from registries, so that another build needs none.
type Lock struct {
	Images     map[string]ResolvedImage   `json:"images,omitempty"`
	Components map[string]LockedComponent `json:"components,omitempty"` // those that are images
	Base       *ResolvedImage             `json:"base,omitempty"`
}

// A LockedComponent is the image of a component, with its manifests.
type LockedComponent struct {
	ResolvedImage
	Files map[string]string `json:"files"`
}

// maxLock limits the bytes of a lock, which has the manifests of components.
const maxLock = 128 << 20

// Write writes the lock into a file, or leaves an old one as it is.
func (l *Lock) Write(path string) error {
	text, err := yaml.Marshal(l)
	if err != nil {
		return err
	}
	text = append([]byte("# Written by \"runlevel release build --lock\", for --from-lock.\n"), text...)
	draft := path + ".part"
	if err := os.WriteFile(draft, text, 0o644); err != nil { //nolint:gosec // it is no secret
		return err
	}
	return os.Rename(draft, path)
}

// ReadLock reads a lock.
func ReadLock(path string) (*Lock, error) {
	text, err := readSmall(path, maxLock)
	if err != nil {
		return nil, err
	}
	var lock Lock
	if err := yaml.UnmarshalStrict(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: this is not a lock that --lock has written: %w", path, yamltext.ErrorOf(err))
	}
	return &lock, nil
}

// check returns problems with a lock of another release, or of another version of it.
func (l *Lock) check(c *Config, base string) (problems []error) {
	have, locked := map[string]string{}, map[string]string{} // images by what they are for
	add := func(what string, image ResolvedImage) {
		if isPinned(image.Image) {
			locked[what] = image.From
		}
	}
	for name, image := range c.Images {
		have["images."+name] = image
	}
	for name, image := range l.Images {
		add("images."+name, image)
	}
	for _, entry := range c.Components {
		if !c.isOnDisk(entry) {
			have["component "+entry.Name] = entry.Source
		}
	}
	for name, image := range l.Components {
		add("component "+name, image.ResolvedImage)
	}
	if base != "" {
		have["the base"] = base
	}
	if l.Base != nil {
		add("the base", *l.Base)
	}
	all := maps.Clone(have)
	maps.Copy(all, locked)
	for _, what := range sortedKeys(all) {
		if have[what] != locked[what] {
			problems = append(problems,
				fmt.Errorf("%s is %q, and the lock has %q: build without --from-lock, and write the "+
					"lock again by --lock", what, have[what], locked[what]))
		}
	}
	return problems
}
