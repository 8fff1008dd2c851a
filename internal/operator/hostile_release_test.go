package operator_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// planted is in the operator's environment. No release may read it.
const planted = "pl4nted-in-the-environment"

// A hostileFile is a file of a release, or a link.
type hostileFile struct{ name, text, link string }

// hostileReleases are releases that are made to do harm, with a part of the sentence that refuses each.
func hostileReleases() map[string]struct {
	files   []hostileFile
	message string
} {
	yaml := func(text string) []hostileFile {
		return []hostileFile{{name: "release-manifests/0000_10_a.yaml", text: text}}
	}
	const thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n"
	var laughs strings.Builder
	for i := range 9 {
		fmt.Fprintf(&laughs, "%c: &%c [%s0]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 10))
	}
	var bulk, values []hostileFile
	for i := range 5 {
		bulk = append(bulk, hostileFile{
			name: fmt.Sprintf("release-manifests/0000_1%d_a.yaml", i),
			text: strings.Repeat(" ", 31<<20),
		})
	}
	for i := range 20 {
		values = append(values, hostileFile{
			name: fmt.Sprintf("release-manifests/0000_%d_a.yaml", 10+i),
			text: thing + "spec: [" + strings.Repeat("1,", 60_000) + "]\n",
		})
	}
	return map[string]struct {
		files   []hostileFile
		message string
	}{
		"a zip bomb":       {yaml(strings.Repeat("\x00", 256<<20)), "the limit for one file is 32 MiB"},
		"many large files": {bulk, "which is the limit"},
		"many values":      {values, "its manifests have more than 1000000 values"},
		"deep YAML": {yaml(thing + "spec: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)),
			"nested more than 200 levels deep"},
		"aliases of aliases": {yaml(thing + "a: &a [1]\n" + laughs.String()), "an alias counts as what it stands for"},
		"many documents":     {yaml(strings.Repeat("---\n", 60_000)), "it has more than 20000 documents"},
		"a link to the token": {[]hostileFile{{
			name: "release-manifests/0000_10_a.yaml",
			link: "/var/run/secrets/kubernetes.io/serviceaccount/token",
		}}, "the target does not exist, or is not part of the payload"},
		"a link to a process": {[]hostileFile{{
			name: "release-manifests/0000_10_a.yaml",
			link: "../../../../../../../proc/self/environ",
		}}, "the target does not exist, or is not part of the payload"},
		"a name that leads out": {[]hostileFile{{name: "release-manifests/../../../tmp/a.yaml", text: "a"}},
			`its name has ".." in it`},
		"a template that asks": {[]hostileFile{{name: "manifests/0000_10_a.yaml", text: `{{env "CANARY"}}`}},
			"unknown function env"},
		"a template that grows": {[]hostileFile{{
			name: "manifests/0000_10_a.yaml",
			text: `{{printf "%1000000000d" 1}}`,
		}}, "printf is not allowed"},
		"a template of the fields": {[]hostileFile{{name: "manifests/0000_10_a.yaml", text: `{{.Env.CANARY}}`}},
			"unknown field Env"},
	}
}

// pushFiles puts an image of files and links into the registry, and returns it by its digest.
func (s *stage) pushFiles(version string, files []hostileFile) string {
	s.t.Helper()
	var layer bytes.Buffer
	packed := gzip.NewWriter(&layer)
	archive := tar.NewWriter(packed)
	metadata := hostileFile{
		name: "release-manifests/release-metadata",
		text: `{"kind": "cincinnati-metadata-v0", "version": "` + version + `"}`,
	}
	references := hostileFile{
		name: "release-manifests/image-references",
		text: `{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "` + version + `"}}`,
	}
	for _, file := range append([]hostileFile{metadata, references}, files...) {
		header := &tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text)), Typeflag: tar.TypeReg}
		if file.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.link
		}
		s.must(archive.WriteHeader(header))
		_, err := archive.Write([]byte(file.text))
		s.must(err)
	}
	s.must(archive.Close())
	s.must(packed.Close())
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.OCILayer))
	s.must(err)
	tag, err := name.NewTag(s.registry+"/team/release:"+version, name.Insecure)
	s.must(err)
	s.must(remote.Write(tag, image))
	digest, err := image.Digest()
	s.must(err)
	return tag.Digest(digest.String()).String()
}

// peak returns how many MiB of memory a process has had at most.
func (s *stage) peak(pid int) int {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	s.must(err)
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		s.t.Fatalf("no VmHWM in %s", text)
	}
	kib, err := strconv.Atoi(string(found[1]))
	s.must(err)
	return kib / 1024
}

// TestHostileReleasesAreRefused, each with a sentence. The operator lives, in bounded memory, and shows nothing of its
// own.
func TestHostileReleasesAreRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	pods := s.deploy(s.push("1.0.0", shop), func(d *appsv1.Deployment) {
		env := &d.Spec.Template.Spec.Containers[0].Env
		*env = append(*env, corev1.EnvVar{Name: "CANARY", Value: planted})
	})
	s.until("installed", isAt("1.0.0"))
	before, err := pods.AwaitReady(t.Context(), 1)
	s.must(err)
	for what, hostile := range hostileReleases() {
		image := s.pushFiles("1.0.1", hostile.files)
		s.update(image)
		s.until(what+" is refused", func(v *configv1.ClusterVersion) bool {
			c := find(v, "ReleaseAccepted")
			return c.Status == configv1.ConditionFalse && strings.Contains(c.Message, image) &&
				strings.Contains(c.Message, hostile.message)
		})
	}

	s.update(s.push("1.0.1", shop+"-- 0000_30_shop_10.yaml --\n"+
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: asks, namespace: shop}, data: {a: "$(CANARY) ${CANARY} {{.Env.CANARY}}"}}`))
	s.until("a good one is applied", isAt("1.0.1"))
	if got := s.configMap("asks").Data["a"]; got != "$(CANARY) ${CANARY} {{.Env.CANARY}}" {
		t.Errorf("the ConfigMap has %q", got)
	}
	after, err := pods.AwaitReady(t.Context(), 1)
	s.must(err)
	if after[0].PID != before[0].PID || after[0].Restarts != before[0].Restarts {
		t.Errorf("the operator was restarted: %+v, %+v", before, after)
	}
	const most = 512 // MiB
	if got := s.peak(after[0].PID); got > most {
		t.Errorf("operator used %d MiB, want at most %d", got, most)
	}
	s.showsNothing(pods, planted)
}

// TestComponentWithLongMessages: the messages of a component must not fill the ClusterVersion, or look like messages of
// other components. The component can only block minor updates.
func TestComponentWithLongMessages(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	s.report("till", "1.0.0", func(o *configv1.ClusterOperatorStatus) {
		// The API server accepts an object with two such messages.
		message := "\x1b[31mno\n* all is well" + strings.Repeat(" for ever", 70_000)
		degraded, upgradeable := condition(configv1.OperatorDegraded, configv1.ConditionTrue),
			condition(configv1.OperatorUpgradeable, configv1.ConditionFalse)
		degraded.Message, upgradeable.Message = message, message
		o.Conditions = []configv1.ClusterOperatorStatusCondition{
			condition(configv1.OperatorAvailable, configv1.ConditionTrue), degraded, upgradeable,
		}
	})
	reported := s.until("the report is in the status", func(v *configv1.ClusterVersion) bool {
		return find(v, configv1.OperatorUpgradeable).Status == configv1.ConditionFalse &&
			find(v, "Failing").Status == configv1.ConditionTrue
	})
	for _, clusterOperatorStatusCondition := range reported.Status.Conditions {
		if len(clusterOperatorStatusCondition.Message) > 2500 ||
			strings.Contains(clusterOperatorStatusCondition.Message, "\x1b") ||
			strings.Contains(clusterOperatorStatusCondition.Message, "\n* all is well") {
			t.Errorf("%s has %d bytes: %.300q", clusterOperatorStatusCondition.Type,
				len(clusterOperatorStatusCondition.Message), clusterOperatorStatusCondition.Message)
		}
	}
	s.update(s.push("1.0.1", shop+till))
	s.report("till", "1.0.1")
	s.until("updated", isAt("1.0.1"))
}
