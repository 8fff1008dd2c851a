package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A payload is the release of one tool. Payloads of the same size differ only in their name, which is part of the names
// of their namespaces and of their definition.
type payload struct {
	name     string
	objects  int
	revision int // one object of a hundred contains the revision
}

// A manifest is one object, in a file of its own.
type manifest struct {
	file, text string
	phase      phase
}

// A phase is the order in which kubectl and helm must apply manifests.
type phase int

const (
	namespacePhase  phase = iota // before objects in the namespace
	definitionPhase              // before custom resources
	objectPhase
)

// perNamespace is the number of objects for each namespace.
const perNamespace = 100

// manifests returns a definition, namespaces, and objects of all kinds in all namespaces.
func (p payload) manifests() []manifest {
	namespaces := max(p.objects/perNamespace, 1)
	all := []manifest{{"10-definition.yaml", p.fill(definition, "", "", 0), definitionPhase}}
	for i := range namespaces {
		all = append(all, manifest{fmt.Sprintf("00-namespace-%03d.yaml", i), p.fill(namespace, p.namespace(i), "", 0),
			namespacePhase})
	}
	for i := range p.objects - len(all) {
		revision := 0
		if i%100 == 0 {
			revision = p.revision
		}
		// The kind also depends on i/100, since the objects with the revision would be of few kinds otherwise.
		kind := kinds[(i+i/100)%len(kinds)]
		text := p.fill(head+kind, p.namespace(i%namespaces), fmt.Sprint("part-", i), revision)
		all = append(all, manifest{fmt.Sprintf("20-object-%05d.yaml", i), text, objectPhase})
	}
	return all
}

func (p payload) namespace(i int) string { return fmt.Sprintf("%s-%d", p.name, i) }

func (p payload) fill(text, namespace, name string, revision int) string {
	return strings.NewReplacer(
		"PAYLOAD", p.name, "NAMESPACE", namespace, "NAME", name, "REVISION", fmt.Sprint("revision-", revision),
	).Replace(text)
}

// files contains the paths of a payload on disk.
type files struct {
	folder        string   // all manifests
	prerequisites []string // the files of namespaces and definitions
	chart         string   // a chart of the same manifests, with definitions in crds/
}

// write writes the files of a payload below a folder, over those of an earlier revision.
func (p payload) write(below string) (files, error) {
	written := files{folder: filepath.Join(below, "manifests"), chart: filepath.Join(below, "chart")}
	texts := map[string]string{
		filepath.Join(written.chart, "Chart.yaml"): "{apiVersion: v2, name: payload, version: 1.0.0}\n",
	}
	for _, m := range p.manifests() {
		file := filepath.Join(written.folder, m.file)
		texts[file] = m.text
		if m.phase != objectPhase {
			written.prerequisites = append(written.prerequisites, file)
		}
		part := "templates"
		if m.phase == definitionPhase {
			part = "crds"
		}
		texts[filepath.Join(written.chart, part, m.file)] = m.text
	}
	for file, text := range texts {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return files{}, err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return files{}, err
		}
	}
	return written, nil
}
