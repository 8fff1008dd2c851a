package setup

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// theSettings is the ConfigMap of the operator's flags, which its Deployment mounts. A release that replaces the
// Deployment leaves them as they are.
var theSettings = kinds.NewID(kinds.ConfigMap, theOperator.Namespace, theOperator.Name)

const (
	settingsFile = "operator.yaml" // the flags, a line each
	// on the operator's pods: the hash of that file, so that they are replaced when it changes
	settingsAnnotation = "runlevel.dev/settings"
)

// applySettings adds flags of the operator to its ConfigMap, and returns the file with all of them.
func (i *Installer) applySettings(ctx context.Context, flags map[string]any) (string, error) {
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
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", theSettings, settingsFile, err)
	}
	wanted := settingsObject()
	wanted.Object["data"] = map[string]any{settingsFile: text}
	return text, i.apply(ctx, wanted)
}

// settingsObject returns the ConfigMap without its data.
func settingsObject() *unstructured.Unstructured {
	settings := &unstructured.Unstructured{}
	settings.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: theSettings.Kind})
	settings.SetNamespace(theSettings.Namespace)
	settings.SetName(theSettings.Name)
	return settings
}

// addFlags returns a file of flags with some flags added. It returns the same text if the file has them.
func addFlags(text string, flags map[string]any) (string, error) {
	var all map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		return "", err
	}
	next := maps.Clone(all)
	if next == nil {
		next = map[string]any{}
	}
	maps.Copy(next, flags)
	if reflect.DeepEqual(all, next) {
		return text, nil
	}
	out, err := yaml.Marshal(next)
	return string(out), err
}

// setSettings has the pods of a Deployment replaced when the file of flags changes.
func setSettings(deployment *unstructured.Unstructured, text string) error {
	if text == "" {
		return nil
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
	return unstructured.SetNestedField(deployment.Object, hash, "spec", "template", "metadata", "annotations",
		settingsAnnotation)
}
