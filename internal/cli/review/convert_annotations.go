package review

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/yamltext"
	"github.com/runlevel/runlevel/pkg/payload"
)

// withoutMapped returns the text of a manifest without the annotations of other tools that the number of its file
// stands for. The Job of a hook may be recreated instead. Other lines stay as they are, if the annotations have lines
// of their own.
func withoutMapped(m *payload.Manifest, text []byte) ([]byte, error) {
	if len(m.Foreign().Mapped()) == 0 {
		return text, nil
	}
	want := withoutMappedAnnotations(m)
	short := withoutLines(m, text)
	if documents, err := payload.Documents(short); err == nil && len(documents) == 1 &&
		reflect.DeepEqual(documents[0].Value, want.Object) {
		return short, nil
	}
	return yaml.Marshal(want.Object)
}

// withoutMappedAnnotations returns the object of a manifest without its mapped annotations.
func withoutMappedAnnotations(m *payload.Manifest) *unstructured.Unstructured {
	object := m.Object().DeepCopy()
	annotations := object.GetAnnotations()
	for _, key := range m.Foreign().Mapped() {
		delete(annotations, key)
	}
	if m.Foreign().IsHookJob() {
		annotations[payload.RecreateAnnotation] = "true"
	}
	if object.SetAnnotations(annotations); len(annotations) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
	}
	return object
}

// withoutLines removes the lines of the mapped annotations from a text.
func withoutLines(m *payload.Manifest, text []byte) []byte {
	root, err := yamltext.Parse(text)
	if err != nil || root == nil {
		return text
	}
	places := yamltext.NewPlaces(root)
	var dropped []int
	for _, key := range m.Foreign().Mapped() {
		line, _ := places.At("metadata", "annotations", key)
		dropped = append(dropped, line)
	}
	instead := 0
	if m.Foreign().IsHookJob() {
		instead = slices.Min(dropped)
	} else if len(withoutMappedAnnotations(m).GetAnnotations()) == 0 {
		line, _ := places.At("metadata", "annotations")
		dropped = append(dropped, line)
	}
	var kept [][]byte
	for i, line := range bytes.SplitAfter(text, []byte("\n")) {
		switch number := i + 1; {
		case number == instead:
			blanks := len(line) - len(bytes.TrimLeft(line, " "))
			kept = append(kept, []byte(strings.Repeat(" ", blanks)+payload.RecreateAnnotation+": \"true\"\n"))
		case !slices.Contains(dropped, number):
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}
