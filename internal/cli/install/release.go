package install

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ownImage is the name of the operator's image in the image-references of a release.
const ownImage = "runlevel"

// An operatorProgram is the image, release and flags of the operator's Deployment.
type operatorProgram struct {
	image    string         // of the operator
	release  string         // an image by its digest, or a folder of the operator's image
	argument string         // for the release
	flags    map[string]any // of the operator, for its ConfigMap
}

// program returns the operatorProgram of the flags. It pulls the release if its digest or the operator's image is not
// known.
func (f *installFlags) program(ctx context.Context, progress io.Writer) (operatorProgram, error) {
	if f.image != "" {
		if _, err := parseImage("image", f.image); err != nil {
			return operatorProgram{}, err
		}
	}
	if path.IsAbs(f.release) {
		if f.image == "" {
			return operatorProgram{}, core.Misusef("--release %s is a folder of the operator's image: name that image with --image", f.release)
		}
		folder := path.Clean(f.release)
		return operatorProgram{image: f.image, release: folder, argument: "--payload-dir=" + folder}, nil
	}
	image, err := parseImage("release", f.release)
	if err != nil {
		return operatorProgram{}, err
	}
	found := operatorProgram{image: f.image, release: f.release}
	if _, isDigest := image.(name.Digest); !isDigest || f.image == "" {
		if err := found.read(ctx, source.Options{Progress: progress, Insecure: f.insecure}); err != nil {
			return operatorProgram{}, err
		}
	}
	found.argument = "--release-image=" + found.release
	return found, nil
}

// parseImage parses the image of a flag. The registry, and a tag or digest, are required.
func parseImage(flag, text string) (name.Reference, error) {
	image, err := name.ParseReference(text, name.StrictValidation)
	if err == nil {
		return image, nil
	}
	alternative := ""
	if flag == "release" {
		alternative = "; a folder of the operator's image needs its absolute path"
	}
	return nil, core.Misusef("--%s: %q is no image: it needs its registry, and a tag or digest, as in registry.example/repo:tag%s", flag, text, alternative)
}

// read pulls the release, and sets its digest, and the operator's image unless a flag has set it.
func (p *operatorProgram) read(ctx context.Context, options source.Options) (err error) {
	release, err := source.Open(ctx, p.release, options)
	if err != nil {
		return core.ReadError(ctx, err)
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	if release.Kind != source.Image {
		return core.Misusef("--release: %s is on this machine, where the operator can't read it: push it to a registry", p.release)
	}
	p.release = release.Image
	if p.image != "" {
		return nil
	}
	p.image = release.Image
	text, err := fs.ReadFile(release.FS, "release-manifests/image-references")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return core.Misusef("%s: %w", p.release, err)
	}
	references, err := payload.ParseReferences(text)
	if err != nil {
		return core.Misusef("%s: image-references: %w", p.release, err)
	}
	if own := references.Images[ownImage]; own != "" {
		p.image = own
	}
	return nil
}

// setIn makes a Deployment of the operator run the program.
func (p operatorProgram) setIn(deployment *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, path...)
	if err != nil || len(containers) != 1 {
		return errors.Join(errors.New("the operator's Deployment has not one container"), err)
	}
	container, _ := containers[0].(map[string]any)
	container["image"] = p.image
	args, _ := container["args"].([]any)
	for i, arg := range args {
		if text, _ := arg.(string); strings.HasPrefix(text, "--release-image=") {
			args[i] = p.argument
		}
	}
	return unstructured.SetNestedSlice(deployment.Object, containers, path...)
}
