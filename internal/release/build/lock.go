package build

import (
	"cmp"
	"fmt"
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
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lock Lock
	if err := yaml.UnmarshalStrict(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: this is not a lock that --lock has written: %w", path, yamltext.ErrorOf(err))
	}
	return &lock, nil
}

// locked returns an image of the lock. It fails if the lock has another image there, or none.
func (r *ResolvedImage) locked(from string) (ResolvedImage, error) {
	var resolved ResolvedImage
	if r != nil {
		resolved = *r
	}
	if resolved.From != from || !isPinned(resolved.Image) {
		return resolved, fmt.Errorf("the lock has %s: build without --from-lock, and write the lock again by --lock",
			cmp.Or(resolved.From, "no image for this"))
	}
	return resolved, nil
}
