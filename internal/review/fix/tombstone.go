package fix

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// This file adds tombstones. Nothing here is done unasked: the caller has an object's
// name from a person.

// The rules that are fixed with a tombstone, and what an added one is called.
const (
	Misspelt  = "delete-misspelt"
	Tombstone = "tombstone"
)

// Guarded says why a tombstone for an object is for a person to write; "" if it is not.
// A kind of the same name in another group is let pass.
func Guarded(id kinds.ID) string {
	why := map[kinds.ID]string{
		{Kind: "Namespace"}:             "all that is in it",
		{Kind: "PersistentVolume"}:      "the data on it",
		{Kind: "PersistentVolumeClaim"}: "the data behind it",
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "all objects of its kind",
	}[kinds.ID{Group: id.Group, Kind: id.Kind}]
	if why == "" {
		return ""
	}
	return fmt.Sprintf("deleting %s takes %s along: write it by hand if that is meant", id, why)
}

// Append adds tombstones to a file, as its last documents, or makes the file.
func (p *Patch) Append(name string, tombstones []byte) error {
	added, err := payload.Documents(tombstones)
	if err != nil || len(added) == 0 {
		return errors.New("this is no tombstone")
	}
	for _, document := range added {
		if !isTombstone(document.Value) {
			return errors.New("this is no tombstone")
		}
		if why := Guarded(idOf(document.Value)); why != "" {
			return errors.New(why)
		}
	}
	text, err := p.read(name)
	isNew := errors.Is(err, fs.ErrNotExist) && !p.exists(name)
	if err != nil && !isNew {
		return fmt.Errorf("%s: %w", name, err)
	}
	documents, err := payload.Documents(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	after, line := appended(text, tombstones, path.Ext(name) == ".json")
	if !isWhole(after, slices.Concat(documents, added)) {
		return fmt.Errorf("%s: it can't be read, or its last document would change with another behind it: add the tombstone by hand", name)
	}
	change := p.change(name, text)
	if isNew {
		change.Path = ""
	}
	change.After = after
	for _, document := range added {
		at := line + bytes.Count(tombstones[:document.Start], []byte("\n"))
		change.Fixed = append(change.Fixed, Fixed{Rule: Tombstone, Line: at, What: "a tombstone for " + idOf(document.Value).String()})
	}
	return nil
}

// appended is a text with another document behind it, and the line where that begins.
// Documents in JSON stand one behind the other.
func appended(text, document []byte, isJSON bool) ([]byte, int) {
	out := slices.Clone(text)
	if len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
		out = append(out, lineBreak(text)...)
	}
	said := bytes.TrimSpace(out)
	lastLine := said[1+bytes.LastIndexByte(said, '\n'):]
	if len(said) > 0 && !isJSON && !bytes.HasPrefix(lastLine, []byte("---")) {
		out = append(out, "---"+lineBreak(text)...)
	}
	line := 1 + bytes.Count(out, []byte("\n"))
	return append(out, bytes.ReplaceAll(document, []byte("\n"), []byte(lineBreak(text)))...), line
}

// Correct makes the delete annotation of one that is misspelt, whose value must say true.
func (p *Patch) Correct(name string, document int, key string) error {
	text, err := p.read(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	documents, err := payload.Documents(text)
	if err != nil || document < 1 || document > len(documents) {
		return fmt.Errorf("%s: there is no document %d", name, document)
	}
	corrected, err := correctKey(documents[document-1], key)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m := fixer{text: text}
	m.correct(documents, map[int][]correction{document: corrected})
	if len(m.left) > 0 {
		return fmt.Errorf("%s: %s", name, byHand)
	}
	change := p.change(name, text)
	change.After, change.Fixed = m.text, append(change.Fixed, m.fixed...)
	return nil
}

// correctKey writes the key of an annotation as it must be, and its value.
func correctKey(d payload.Document, key string) ([]correction, error) {
	annotations := entries(d.Value, "annotations")
	value, exists := annotations[key]
	switch {
	case !exists:
		return nil, fmt.Errorf("there is no annotation %q", key)
	case annotations[payload.DeleteAnnotation] != nil:
		return nil, fmt.Errorf("there is %s already: drop %q by hand", payload.DeleteAnnotation, key)
	case !saysTrue(value):
		return nil, fmt.Errorf("the value of %q is not true, so it would not delete: fix it by hand, or drop it", key)
	case Guarded(idOf(d.Value)) != "":
		return nil, errors.New(Guarded(idOf(d.Value)))
	}
	text := layOut(d.Text)
	path := []string{"metadata", "annotations", key}
	node, _, _ := text.find(path)
	at, isSimple := text.value(path)
	if node == nil || !isSimple {
		return nil, errors.New(byHand)
	}
	keyAt, isSimple := text.scalar(node)
	if !isSimple {
		return nil, errors.New(byHand)
	}
	quote := "" // the one it is written in
	if first := string(text.text[keyAt.start]); first == `"` || first == "'" {
		quote = first
	}
	return []correction{
		{
			edit: edit{keyAt.start, keyAt.end, quote + payload.DeleteAnnotation + quote}, rule: Misspelt, delete: true,
			path: path, key: payload.DeleteAnnotation, value: value, what: fmt.Sprintf("the annotation %q is %s now", key, payload.DeleteAnnotation),
		},
		{
			edit: edit{at.start, at.end, `"true"`}, rule: Misspelt, delete: true,
			path: []string{"metadata", "annotations", payload.DeleteAnnotation}, value: "true",
		},
	}, nil
}

// idOf says which object a document is about.
func idOf(value any) kinds.ID {
	fields, _ := value.(map[string]any)
	object := unstructured.Unstructured{Object: fields}
	kind := object.GroupVersionKind()
	return kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}
