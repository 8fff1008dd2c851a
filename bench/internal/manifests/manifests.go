// Package manifests reads folders of manifests, as far as it takes to send them.
//
// It knows documents and names, nothing of what is in them: no order, no checks, no
// lines. Runlevel's own parser is not used here, since what it does not take may well be
// taken by others. Start with Read.
package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// A Manifest is an object to send.
type Manifest struct {
	File       string
	APIVersion string
	Kind       string
	Metadata   struct{ Name, Namespace string }
	JSON       []byte `json:"-"`
}

// Read reads all manifests of a folder, in the order of their names.
func Read(folder string) ([]Manifest, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.y*ml"))
	if err != nil {
		return nil, err
	}
	var all []Manifest
	for _, file := range files {
		read, err := readFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, read...)
	}
	return all, nil
}

func readFile(file string) ([]Manifest, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range found {
		found[i].File = file
	}
	return found, nil
}

// Parse reads the documents of a file. Those that are empty are none.
func Parse(content []byte) ([]Manifest, error) {
	var found []Manifest
	// The line break before a separator is the document's: a text may end with it.
	content = bytes.ReplaceAll(append([]byte("\n"), content...), []byte("\n---"), []byte("\n\n---"))
	for _, document := range bytes.Split(content, []byte("\n---")) {
		text, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(text, []byte("null")) {
			continue
		}
		m := Manifest{JSON: text}
		if err := json.Unmarshal(text, &m); err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	return found, nil
}
