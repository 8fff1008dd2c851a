package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ownImage is the name of the operator's image in the image-references of a release.
const ownImage = "runlevel"

// ErrOnDisk is the error of a release that is no image of a registry.
var ErrOnDisk = errors.New("is on this machine, where the operator can't read it: push it to a registry")

// An OperatorProgram is what the operator's Deployment runs, and the release that it begins with.
type OperatorProgram struct {
	Image    string         // of the operator; "" for that of the release
	Release  string         // an image, or the absolute path of a folder of the operator's image
	Settings map[string]any // flags of the operator, for its ConfigMap
}

// Read pulls the release, sets its digest, and the operator's image unless that is set.
func (p *OperatorProgram) Read(ctx context.Context, options source.Options) (err error) {
	release, err := source.Open(ctx, p.Release, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	if release.Kind != source.Image {
		return fmt.Errorf("%s %w", p.Release, ErrOnDisk)
	}
	p.Release = release.Image
	if p.Image != "" {
		return nil
	}
	p.Image = release.Image
	text, err := fs.ReadFile(release.FS, "release-manifests/image-references")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Release, err)
	}
	references, err := payload.ParseReferences(text)
	if err != nil {
		return fmt.Errorf("%s: image-references: %w", p.Release, err)
	}
	if own := references.Images[ownImage]; own != "" {
		p.Image = own
	}
	return nil
}

// argument returns the operator's argument for the release.
func (p *OperatorProgram) argument() string {
	if path.IsAbs(p.Release) {
		return "--payload-dir=" + p.Release
	}
	return "--release-image=" + p.Release
}

// setIn makes a Deployment of the operator run the program.
func (p *OperatorProgram) setIn(deployment *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, path...)
	if err != nil || len(containers) != 1 {
		return errors.Join(errors.New("the operator's Deployment has not one container"), err)
	}
	container, _ := containers[0].(map[string]any)
	container["image"] = p.Image
	args, _ := container["args"].([]any)
	for i, arg := range args {
		if text, _ := arg.(string); strings.HasPrefix(text, "--release-image=") {
			args[i] = p.argument()
		}
	}
	return unstructured.SetNestedSlice(deployment.Object, containers, path...)
}
