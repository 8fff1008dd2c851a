package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/bench/internal/manifests"
)

// A corpus is a payload of real manifests. It has no twins, since its names are its own.
type corpus struct {
	name string
	all  []manifests.Manifest
}

func (c *corpus) title() string { return c.name }
func (c *corpus) size() int     { return len(c.all) }

func (c *corpus) documents(_ string, revision int) []document {
	var made []document
	for i, m := range c.all {
		text := m.JSON
		if revision > 0 && i%100 == 0 {
			text = bytes.Replace(text, []byte(`"annotations":{`), fmt.Appendf(nil, `"annotations":{"example.com/revision":"%d",`, revision), 1)
		}
		made = append(made, document{file: fmt.Sprintf("%05d.yaml", i), text: asYAML(text), stage: stageOf(m)})
	}
	return made
}

// asYAML writes it as people do, which everybody reads more slowly than JSON.
func asYAML(text []byte) string {
	written, err := yaml.JSONToYAML(text)
	if err != nil {
		return string(text) // JSON is YAML, too
	}
	return string(written)
}

func stageOf(m manifests.Manifest) stage {
	switch m.Kind {
	case "Namespace":
		return namespaces
	case "CustomResourceDefinition":
		return definitions
	}
	return others
}

// These have no backend in a sandbox: what they announce would fail, or never be ready.
var unanswered = []string{"APIService", "ClusterOperator", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}

// readCorpus reads a release, as a plain folder or as the cluster-version operator has
// it, without what not every contestant takes, and says what that is.
func readCorpus(folder string, progress io.Writer) (*corpus, error) {
	c := &corpus{name: filepath.Base(folder)}
	left := map[string]int{}
	seen := map[string]bool{}
	for _, part := range []string{"", "manifests", "release-manifests"} {
		read, err := manifests.Read(filepath.Join(folder, part))
		if err != nil {
			return nil, err
		}
		for _, m := range read {
			text, deleted, err := plain(m.JSON)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.File, err)
			}
			group, _, _ := strings.Cut(m.APIVersion, "/")
			id := strings.Join([]string{group, m.Kind, m.Metadata.Namespace, m.Metadata.Name}, "/")
			switch {
			case deleted:
				left["are to be deleted"]++
			case seen[id]:
				left["are there already, for another kind of cluster"]++
			case slices.Contains(unanswered, m.Kind):
				left["need a backend"]++
			default:
				m.JSON = text
				c.all = append(c.all, m)
			}
			seen[id] = seen[id] || !deleted
		}
	}
	if len(c.all) == 0 {
		return nil, fmt.Errorf("--corpus %s: there are no manifests", folder)
	}
	for why, count := range left {
		_, _ = fmt.Fprintf(progress, "%s: %d left out: they %s\n", c.name, count, why)
	}
	return c, nil
}

// plain takes away what only some contestants understand: for which clusters a manifest
// is. It says whether the object is to be deleted.
func plain(text []byte) (without []byte, deleted bool, err error) {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, false, err
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		return nil, false, errors.New("there is no metadata")
	}
	kept := map[string]any{"example.com/part-of": "bench"}
	annotations, _ := metadata["annotations"].(map[string]any)
	for key, value := range annotations {
		deleted = deleted || key == "release.openshift.io/delete" && value == "true"
		if !strings.Contains(key, "openshift.io/") {
			kept[key] = value
		}
	}
	metadata["annotations"] = kept
	without, err = json.Marshal(object)
	return without, deleted, err
}

// try leaves out what the server does not take, by having the floor apply it all once,
// on a server of its own.
func (c *corpus) try(ctx context.Context, programs map[string]string, below string, progress io.Writer) (err error) {
	s, err := startServer(ctx, programs[ours], below)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	p, err := write(c.documents("", 0), filepath.Join(below, "trial"))
	if err != nil {
		return err
	}
	on := stand{server: s, programs: programs, home: below}
	if _, err := on.run(ctx, []line{{floor, p.folder}}); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	said, err := os.ReadFile(filepath.Join(below, "output"))
	if err != nil {
		return err
	}
	refused := refusals(string(said), p.folder)
	var taken []manifests.Manifest
	for i, m := range c.all {
		if why, ok := refused[fmt.Sprintf("%05d.yaml", i)]; ok {
			_, _ = fmt.Fprintf(progress, "%s: %s %s left out: %s\n", c.name, m.Kind, m.Metadata.Name, why)
		} else {
			taken = append(taken, m)
		}
	}
	if len(taken) == len(c.all) {
		return fmt.Errorf("it failed: %s", said)
	}
	c.all = taken
	return nil
}

// refusals reads the lines of the floor, each of which begins with a file.
func refusals(said, folder string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(said) {
		if rest, ok := strings.CutPrefix(line, folder+string(filepath.Separator)); ok {
			file, why, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			found[file] = why
		}
	}
	return found
}
