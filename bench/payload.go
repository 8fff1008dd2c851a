package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A payload is what contestants apply.
type payload interface {
	title() string
	size() int
	// documents are its manifests for a contestant, in a revision.
	documents(of string, revision int) []document
}

// A generated payload has so many objects. For each contestant there is a twin of it.
type generated int

func (g generated) title() string { return "generated" }
func (g generated) size() int     { return int(g) }

func (g generated) documents(of string, revision int) []document {
	return twin{name: of, objects: int(g), revision: revision}.documents()
}

// A twin is a payload of one contestant's own: all twins of a size are alike but for
// their name, which is part of the names of their namespaces and of their definition.
type twin struct {
	name     string
	objects  int
	revision int
}

// A document is one manifest, in a file of its own.
type document struct {
	file, text string
	stage      stage
}

// A stage says what has to be there before a document can be applied.
type stage int

const (
	namespaces stage = iota
	definitions
	others
)

// perNamespace is how many objects share a namespace.
const perNamespace = 100

// documents makes the twin's manifests: a definition, namespaces, and objects of all
// kinds in all namespaces. One of a hundred says the revision.
func (t twin) documents() []document {
	rooms := max(t.objects/perNamespace, 1)
	made := []document{{file: "10-definition.yaml", text: t.fill(definition, "", "", 0), stage: definitions}}
	for room := range rooms {
		made = append(made, document{
			file: fmt.Sprintf("00-namespace-%03d.yaml", room), text: t.fill(namespace, t.namespace(room), "", 0), stage: namespaces,
		})
	}
	for i := range t.objects - len(made) {
		revision := 0
		if i%100 == 0 {
			revision = t.revision
		}
		// By the hundreds as well, or those with the revision would be of few kinds.
		kind := kinds[(i+i/100)%len(kinds)]
		made = append(made, document{
			file: fmt.Sprintf("20-object-%05d.yaml", i), text: t.fill(head+kind, t.namespace(i%rooms), fmt.Sprint("part-", i), revision), stage: others,
		})
	}
	return made
}

func (t twin) namespace(room int) string { return fmt.Sprintf("%s-%d", t.name, room) }

func (t twin) fill(text, namespace, name string, revision int) string {
	return strings.NewReplacer(
		"TWIN", t.name, "NAMESPACE", namespace, "NAME", name, "REVISION", fmt.Sprint("revision-", revision),
	).Replace(text)
}

// A place on disk has a payload as everybody can read it: a plain folder, and a chart.
type place struct {
	folder string   // all manifests, side by side
	before []string // the files of those that others need
	chart  string   // the same, with definitions where helm wants them
}

// write writes documents below a folder, over those of an earlier revision.
func write(documents []document, below string) (place, error) {
	p := place{folder: filepath.Join(below, "manifests"), chart: filepath.Join(below, "chart")}
	for _, folder := range []string{p.folder, filepath.Join(p.chart, "crds"), filepath.Join(p.chart, "templates")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return p, err
		}
	}
	files := map[string]string{filepath.Join(p.chart, "Chart.yaml"): "{apiVersion: v2, name: payload, version: 1.0.0}\n"}
	for _, d := range documents {
		plain := filepath.Join(p.folder, d.file)
		files[plain] = d.text
		if d.stage != others {
			p.before = append(p.before, plain)
		}
		if d.stage == definitions {
			files[filepath.Join(p.chart, "crds", d.file)] = d.text
		} else {
			files[filepath.Join(p.chart, "templates", d.file)] = strings.ReplaceAll(d.text, "{{", `{{ "{{" }}`)
		}
	}
	for file, text := range files {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return p, err
		}
	}
	return p, nil
}
