package mistakes_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// On real nodes, this program is in all images of the shop.
const (
	programPath = "/agent"
	programName = "registry.example/program:1"
)

// runInContainer is the main function of this program in a container: it serves on all ports of the shop, or ends.
func runInContainer(args []string) int {
	if len(args) > 0 {
		return 0 // a Job, or the probe of the agent
	}
	for _, path := range []string{"/live", "/ready"} {
		http.HandleFunc(path, func(http.ResponseWriter, *http.Request) {})
	}
	for _, port := range []string{":5432", ":8443"} {
		if _, err := net.Listen("tcp", port); err != nil { //nolint:noctx // until the container ends
			fmt.Println(err)
		}
	}
	fmt.Println(http.ListenAndServe(":8080", nil)) //nolint:gosec // only probes ask
	return 1
}

// TestOutagesOnNodes applies the outages that only a kubelet can show to a real node.
func TestOutagesOnNodes(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	folder := t.TempDir()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, filepath.Base(programPath)), self, 0o755); err != nil {
		t.Fatal(err)
	}
	config := sandboxtest.Start(t, sandbox.Options{RealNodes: 1, Images: []string{folder + "=" + programName}}).Config
	config.QPS = -1
	all, err := mistakes.Outages()
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(maxTrials)
	for i, m := range all {
		if m.Tried != mistakes.Node {
			continue
		}
		one := trialOf(t, m)
		one.before, one.after = withProgram(t, one.before), withProgram(t, one.after)
		group.Go(func() error { one.run(t, config, fmt.Sprintf("shop%03d", i)); return nil })
	}
	_ = group.Wait()
}

// shopImage matches the images that the node has.
var shopImage = regexp.MustCompile(`^registry\.example/(web|database|gatekeeper|agent|cleaner|migrate):1$`)

// withProgram returns a release whose images have this program.
func withProgram(t *testing.T, release fstest.MapFS) fstest.MapFS {
	t.Helper()
	changed := fstest.MapFS{}
	for name := range release {
		var documents []string
		for _, object := range objects(t, release, name) {
			if path := kinds.PodSpec(object.GroupVersionKind().GroupKind()); path != nil {
				spec, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
				fields, _ := spec.(map[string]any)
				containers, _ := fields["containers"].([]any)
				for _, container := range containers {
					if fields, isMapping := container.(map[string]any); isMapping {
						setProgram(fields)
					}
				}
			}
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			documents = append(documents, string(text))
		}
		changed[name] = &fstest.MapFile{Data: []byte(strings.Join(documents, "---\n"))}
	}
	return changed
}

// setProgram has a container of the shop run this program.
func setProgram(container map[string]any) {
	image, _ := container["image"].(string)
	if !shopImage.MatchString(image) {
		return
	}
	container["image"] = programName
	if container["command"] == nil {
		command := []any{programPath}
		if strings.Contains(image, "migrate") || strings.Contains(image, "cleaner") {
			command = append(command, "end")
		}
		container["command"] = command
	}
}
