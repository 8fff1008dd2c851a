package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Write writes a snapshot as a stream of YAML documents.
func (s *Snapshot) Write(out io.Writer) error {
	var text bytes.Buffer
	head, err := yaml.Marshal(s.Head)
	if err != nil {
		return err
	}
	text.Write(head)
	for _, object := range s.Objects {
		written, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		text.WriteString("---\n")
		text.Write(written)
	}
	_, err = out.Write(text.Bytes())
	return err
}

// Read reads a snapshot.
func Read(reader io.Reader) (*Snapshot, error) {
	decoder := utilyaml.NewYAMLToJSONDecoder(reader)
	s := &Snapshot{}
	if err := decoder.Decode(&s.Head); err != nil || s.APIVersion != headVersion || s.Kind != headKind {
		return nil, fmt.Errorf("not a snapshot: the first document of a snapshot has kind %s of %s; \"runlevel "+
			"snapshot\" writes it", headKind, headVersion)
	}
	for number := 2; ; number++ {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %s", number, printable.Line(err.Error()))
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("document %d is not an object: kind, apiVersion or name is missing", number)
		}
		s.Objects = append(s.Objects, object)
	}
}
