package state

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// urlPassword is the password in a URL, such as that of a proxy.
var urlPassword = regexp.MustCompile(`(://[^/\s:@]*):[^/\s@]+@`)

// write writes a file of the report, unless its text could not be made.
func (i *inspector) write(path, has string, text []byte, err error) {
	if i.failed = cmp.Or(i.failed, err); i.failed != nil {
		return
	}
	text = urlPassword.ReplaceAll(text, []byte("$1:***@"))
	file := filepath.Join(i.report.Folder, filepath.FromSlash(path))
	if i.failed = os.MkdirAll(filepath.Dir(file), 0o700); i.failed == nil {
		i.failed = os.WriteFile(file, text, 0o600)
	}
	if i.failed == nil {
		i.report.Files = append(i.report.Files, InspectedFile{path, has, len(text)})
	}
}

// writeJSON writes a value.
func (i *inspector) writeJSON(path, has string, value any) {
	text, err := printable.IndentedJSON(value)
	i.write(path, has, text, err)
}

// writeLines writes lines, without control characters.
func (i *inspector) writeLines(path, has string, lines []string) {
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&text, printable.Line(line))
	}
	i.write(path, has, []byte(text.String()), nil)
}

// writeObjects writes objects as the documents of a file, without values of Secrets; no file if there are no objects.
func (i *inspector) writeObjects(path, has string, objects ...unstructured.Unstructured) {
	var text []byte
	var failed error
	for i := range objects {
		document, err := inspected(objects[i].Object)
		text, failed = append(append(text, "---\n"...), document...), cmp.Or(failed, err)
	}
	if len(objects) > 0 {
		i.write(path, has, text, failed)
	}
}

// inspected returns the document of an object, without kubectl's copy. A document with masked values is not a manifest.
func inspected(object map[string]any) ([]byte, error) {
	shown := redacted(object)
	document, err := printable.YAML(withoutCopy(shown))
	if isMasked := urlPassword.Match(document) || !reflect.DeepEqual(shown, object); isMasked {
		return printable.YAML(fields.AsMasked(withoutCopy(shown)))
	}
	return document, err
}

// redacted returns an object without values of Secrets and ConfigMaps.
func redacted(object map[string]any) map[string]any {
	if object["kind"] == "ConfigMap" && object["apiVersion"] == "v1" { // masked like a Secret
		object = maps.Clone(object)
		object["kind"] = "Secret"
		object = maps.Clone(fields.Mask(object))
		object["kind"] = "ConfigMap"
	}
	return fields.Mask(object)
}

// withoutCopy returns an object without the copy that kubectl apply keeps in an annotation.
func withoutCopy(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations[corev1.LastAppliedConfigAnnotation] == nil {
		return object
	}
	object, metadata, annotations = maps.Clone(object), maps.Clone(metadata), maps.Clone(annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	metadata["annotations"], object["metadata"] = annotations, metadata
	return object
}
