// Package manifests reads folders of manifests, as far as it takes to send them.
//
// It knows documents and names, nothing of what is in them: no order, no checks, no
// lines. Runlevel's own parser is not used here, because this one reads for those that
// Runlevel is measured beside. Start with Read.
package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

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

// Read reads all manifests of a folder, several files at a time, in the order of their
// names.
func Read(folder string) ([]Manifest, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.y*ml"))
	if err != nil {
		return nil, err
	}
	read := make([][]Manifest, len(files))
	failed := make([]error, len(files))
	next := make(chan int)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := range next {
				read[i], failed[i] = readFile(files[i])
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	group.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(read...), nil
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
