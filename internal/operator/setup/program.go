package setup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/prometheus"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ownImage is the name of the operator's image in the image-references of a release.
const ownImage = "runlevel"

// ErrSettings is the error of flags that contradict the operator's other settings.
var ErrSettings = errors.New("with the settings in")

// ErrOnDisk is the error of a release in a folder or an archive.
var ErrOnDisk = errors.New("is on this machine, where the operator can't read it: push it to a registry")

// A Program is the image that the operator's Deployment runs, and the release that it applies first.
type Program struct {
	Image    string         // image of the operator; "" for that of the release
	Release  string         // an image, or the absolute path of a folder of the operator's image
	Settings map[string]any // flags of the operator, for its ConfigMap
}

// Read pulls the release, and sets its digest. It also sets the operator's image, unless the user has set one.
func (p *Program) Read(ctx context.Context, options source.Options) (err error) {
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
func (p *Program) argument() string {
	if path.IsAbs(p.Release) {
		return "--payload-dir=" + p.Release
	}
	return "--release-image=" + p.Release
}

// setIn makes a Deployment of the operator run the program.
func (p *Program) setIn(deployment *unstructured.Unstructured) error {
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

// theSettings is the ConfigMap of the operator's flags, which its Deployment mounts. A release that replaces the
// Deployment leaves them as they are.
var theSettings = kinds.NewID(kinds.ConfigMap, theOperator.Namespace, theOperator.Name)

const (
	settingsFile = "operator.yaml" // the flags, a line each
	// annotation of the operator's pods: the hash of that file, so that they are replaced when it changes
	settingsAnnotation = "runlevel.dev/settings"
)

// mergeSettings adds flags of the operator to those of its ConfigMap, and returns the file with all flags.
func (i *Installer) mergeSettings(ctx context.Context, flags map[string]any) (string, error) {
	before, err := i.Cluster.Client.CoreV1().ConfigMaps(theSettings.Namespace).Get(ctx, theSettings.Name,
		metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("get %s: %w", theSettings, err)
	}
	text := before.Data[settingsFile]
	if len(flags) == 0 {
		return text, nil
	}
	text, err = addFlags(text, flags)
	var options prometheus.Options
	if err == nil {
		err = yaml.Unmarshal([]byte(text), &options)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", theSettings, settingsFile, err)
	}
	if err := options.Check(); err != nil {
		return "", fmt.Errorf("%w %s: %w", ErrSettings, theSettings, err)
	}
	return text, nil
}

// applySettings applies the ConfigMap of the operator's flags.
func (i *Installer) applySettings(ctx context.Context, text string) error {
	wanted := settingsObject()
	wanted.Object["data"] = map[string]any{settingsFile: text}
	return i.apply(ctx, wanted)
}

// settingsObject returns the ConfigMap without its data.
func settingsObject() *unstructured.Unstructured {
	settings := &unstructured.Unstructured{}
	settings.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: theSettings.Kind})
	settings.SetNamespace(theSettings.Namespace)
	settings.SetName(theSettings.Name)
	return settings
}

// addFlags returns a file of flags with some flags added. It returns the same text if the file has them. Without a
// Prometheus, it removes its files.
func addFlags(text string, flags map[string]any) (string, error) {
	var all map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		return "", err
	}
	next := maps.Clone(all)
	if next == nil {
		next = map[string]any{}
	}
	if flags["prometheus-url"] == prometheus.None {
		delete(next, "prometheus-ca-file")
		delete(next, "prometheus-token-file")
	}
	maps.Copy(next, flags)
	if reflect.DeepEqual(all, next) {
		return text, nil
	}
	out, err := yaml.Marshal(next)
	return string(out), err
}

// setSettings makes a Deployment replace its pods when the file of flags changes.
func setSettings(deployment *unstructured.Unstructured, text string) error {
	if text == "" {
		return nil
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
	return unstructured.SetNestedField(deployment.Object, hash, "spec", "template", "metadata", "annotations",
		settingsAnnotation)
}
