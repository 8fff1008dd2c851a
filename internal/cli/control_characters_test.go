package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostile is untrusted text, which would colour a terminal, reverse lines, and add fake ones.
const (
	hostile     = "a\x1b[31mb\u202ec\u2066d\u2028e\nfaked: f\u0085g"
	inYAML      = `"a\e[31mb\u202ec\u2066d\u2028e\nfaked: f\u0085g"`
	inFileNames = "a\x1b[31mb\u202ec\u2066d\u2028e\nfaked: f\u0085g"
)

// hostileReleases are the files of two releases, in the folders old and new, that have such text in all
// possible places: in names of files and objects, in fields that the program reads, and in others.
func hostileReleases() map[string]string {
	object := func(kind, name, rest string) string {
		return "apiVersion: v1\nkind: " + kind + "\nmetadata: {namespace: shop, name: " + name + rest + "\n"
	}
	return map[string]string{
		"old/0000_10_web_01.yaml": object("ConfigMap", "it", "}\ndata: {key: a, "+inYAML+": b}"),
		"new/0000_10_web_01.yaml": object("ConfigMap", "it",
			"}\ndata: {key: "+inYAML+", "+inYAML+": "+inYAML+"}"),
		"old/0000_10_web_02.yaml": object("ConfigMap", "deleted", "}"),
		"new/0000_10_web_02.yaml": object("ConfigMap", "deleted",
			`, annotations: {release.openshift.io/delete: "true", `+inYAML+": "+inYAML+"}}"),
		"old/0000_10_web_03.yaml":                 object("ConfigMap", "dropped", "}\ndata: {"+inYAML+": "+inYAML+"}"),
		"new/0000_20_" + inFileNames + "_01.yaml": object("ConfigMap", "filed", "}"),
		"new/0000_30_web_01.yaml": object("ConfigMap", "ready",
			", annotations: {runlevel.dev/ready: "+inYAML+"}}"),
		"wrong/0000_10_web_01.yaml": object("ConfigMap", inYAML, "}"),
		"wrong/0000_10_web_02.yaml": object(inYAML, "kind", "}"),
		"wrong/0000_10_web_03.yaml": "apiVersion: " + inYAML +
			"\nkind: Hat\nmetadata: {name: version}\n",
		"wrong/0000_10_web_04.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: place, namespace: " + inYAML +
			"}\n",
		"wrong/0000_10_web_05.yaml": object("ConfigMap", "deletes",
			", annotations: {release.openshift.io/delete: "+inYAML+"}}"),
		"wrong/0000_10_web_06.yaml": object("ConfigMap", "gates", ", annotations: {release.openshift.io/feature-gate: "+
			inYAML+", include.release.openshift.io/x: "+inYAML+"}}"),
		"wrong/0000_10_web_07.yaml": object("ConfigMap", "labels",
			", labels: {"+inYAML+": "+inYAML+"}, finalizers: ["+inYAML+"]}"),
		"wrong/0000_10_web_08.yaml": object("Service", "fields",
			"}\nspec: {"+inYAML+": "+inYAML+", ports: ["+inYAML+"]}"),
		"wrong/0000_10_web_09.yaml": object("ConfigMap", "twice",
			"}\n"+inYAML+": 1\n"+inYAML+": 2"),
		"torn/0000_10_web_01.yaml":                       "key: \"\x1b[31m\u202e\n",
		"torn/0000_10_" + inFileNames + "_02.yaml":       "{{ " + hostile + " }}",
		"templates/0000_10_web_01.yaml":                  object("ConfigMap", "a", "}"),
		"templates/0000_" + inFileNames + "_20_web.yaml": "no: manifest\n",
	}
}

// readers are the commands that read a release, in each of their formats. NEW and OLD stand for the folders.
var readers = []string{
	"render NEW", "render NEW -o json", "render NEW --explain", "render NEW --only-excluded",
	"render NEW --output-dir OUT",
	"graph NEW", "graph NEW --manifests", "graph NEW -o json", "graph NEW -o yaml", "graph NEW -o dot",
	"graph NEW -o svg", "graph NEW -o mermaid",
	"graph NEW --references", "graph NEW --references -o json", "graph NEW --references -o dot",
	"graph NEW --references -o mermaid",
	"release info NEW", "release info NEW -o json", "release info NEW -o yaml", "release info OLD NEW",
	"release info OLD NEW -o json",
	"plan OLD NEW", "plan OLD NEW --all", "plan OLD NEW -o json", "plan OLD NEW -o yaml", "plan OLD NEW -o markdown",
	"plan OLD NEW -o html", "lint NEW --previous OLD -o html --show-ignored",
	"lint NEW", "lint NEW --previous OLD --all", "lint NEW --previous OLD -o json", "lint NEW --previous OLD -o yaml",
	"lint NEW --previous OLD -o sarif",
	"lint NEW --previous OLD -o junit", "lint NEW --previous OLD -o github", "lint NEW --baseline OUT --write-baseline",
	"why ConfigMap/deleted -n shop NEW " + onCluster, "gate NEW " + onCluster, "gate NEW -o json " + onCluster,
	"gate NEW -o yaml " + onCluster,
	"diff NEW --all " + onCluster, "diff NEW -o json --all " + onCluster, "diff NEW -o yaml --all " + onCluster,
	"diff NEW -o markdown " + onCluster,
	"plan NEW --cluster " + onCluster, "plan NEW --cluster -o markdown " + onCluster,
	"apply NEW --dry-run=server " + onCluster, "apply NEW --dry-run=server -o json " + onCluster,
}

const onCluster = "--name hostile --kubeconfig CONFIG"

// TestCommandsEscapeControlCharacters runs every command that reads releases.
func TestCommandsEscapeControlCharacters(t *testing.T) {
	folder := t.TempDir()
	for name, text := range hostileReleases() {
		write(t, filepath.Join(folder, name), text)
	}
	for _, name := range []string{"new", "wrong", "torn", "templates"} {
		for i, reader := range readers {
			var args []string
			for _, word := range strings.Fields(reader) {
				switch word {
				case "NEW":
					word = filepath.Join(folder, name)
				case "OLD":
					word = filepath.Join(folder, "old")
				case "OUT":
					word = filepath.Join(folder, name+"-out-"+string(rune('a'+i)))
				case "CONFIG":
					word = control.Sandbox(t).Kubeconfig
				}
				args = append(args, word)
			}
			_, output := runCommand(args)
			if wrong := harm(output); wrong != "" {
				t.Errorf("%s of %s prints %q", reader, name, wrong)
			}
		}
	}
	written, err := filepath.Glob(filepath.Join(folder, "*-out-*"))
	if err != nil || len(written) == 0 {
		t.Fatal("no file was written", err)
	}
	for _, path := range written {
		if err := filepath.WalkDir(path, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if wrong := harm(string(text)); wrong != "" {
				t.Errorf("file %q has the line %q", path, wrong)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// harm returns the first line that no command may show, or "".
func harm(output string) string {
	for line := range strings.Lines(output) {
		if strings.ContainsAny(line, "\x1b\u202e\u2066\u2028\u0085") || strings.HasPrefix(line, "faked") {
			return line
		}
	}
	return ""
}
