package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/oci"
)

// InputRef is the ref of standard input, and inputName the name of its text as a file.
const (
	InputRef  = "-"
	inputName = "standard-input.yaml"
)

// openInput opens a release on standard input.
func openInput(ctx context.Context, input io.Reader, limits Limits) (*Release, error) {
	if input == nil {
		return nil, phrase{subject: "standard input", text: "can't be read here: name a folder, an archive or an image"}
	}
	if file, isFile := input.(*os.File); isFile {
		if info, err := file.Stat(); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
			return nil, phrase{
				subject: "standard input",
				text:    `is a terminal: pipe manifests into it, as in "helm template shop ./chart | runlevel apply - --name shop"`,
			}
		}
	}
	return openSingle(oci.Interruptible(ctx, input), inputName, Input, limits)
}

// openFile opens a release in a single file of manifests.
func openFile(ctx context.Context, path string, limits Limits) (*Release, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, oci.WithoutPath(err)
	}
	defer file.Close()
	return openSingle(oci.Interruptible(ctx, file), filepath.Base(path), File, limits)
}

// openSingle returns a release of one file.
func openSingle(manifests io.Reader, name string, kind Format, limits Limits) (*Release, error) {
	text, err := io.ReadAll(io.LimitReader(manifests, limits.File+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limits.File {
		return nil,
			oci.SizeError(fmt.Sprintf("%s has more than %s, which is the limit for one file", quoteName(name),
				oci.InBytes(limits.File)))
	}
	files, err := txtar.FS(&txtar.Archive{Files: []txtar.File{{Name: name, Data: text}}})
	return &Release{FS: files, Kind: kind}, err
}

// A renderer is a tool that makes manifests of a folder.
type renderer struct {
	files   []string // patterns of files that the folder has
	what    string
	command string // command with %s for the folder
	isOnly  bool   // a folder that also has manifests is a folder of manifests
}

var renderers = []renderer{
	{files: []string{"Chart.yaml"}, what: "a Helm chart", command: "helm template NAME %s"},
	{
		files:   []string{"kustomization.yaml", "kustomization.yml", "Kustomization"},
		what:    "a kustomization",
		command: "kubectl kustomize %s",
	},
	{files: []string{"*.jsonnet"}, what: "Jsonnet", command: "jsonnet -y %s/main.jsonnet", isOnly: true},
	{files: []string{"*.cue"}, what: "CUE", command: "cue export --out yaml %s", isOnly: true},
}

// checkRendered returns an error if a folder has a chart or kustomization instead of manifests.
func checkRendered(folder string) error {
	for _, tool := range renderers {
		has := func(pattern string) bool {
			found, _ := filepath.Glob(filepath.Join(escapeGlob(folder), pattern))
			return len(found) > 0
		}
		if slices.ContainsFunc(tool.files, has) && !(tool.isOnly && has("*.yaml")) {
			return phrase{text: fmt.Sprintf(`is %s: render it, as in "`+tool.command+` | runlevel apply - --name NAME"`,
				tool.what, folder)}
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "values.yaml")); !errors.Is(err, fs.ErrNotExist) {
		return phrase{text: `has values.yaml: name the chart that they are for, as in "helm template NAME CHART -f ` +
			filepath.Join(folder, "values.yaml") + ` | runlevel apply - --name NAME"`}
	}
	return nil
}

// escapeGlob returns a path as a pattern that matches it alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}
