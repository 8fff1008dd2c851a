package operator_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// olderProgram returns a program of an earlier commit.
func olderProgram(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(sandboxtest.Older(t), name)
}

// runOlder runs the older command line, and returns its output and exit code.
func (s *stage) runOlder(t *testing.T, arguments ...string) (out string, code int) {
	t.Helper()
	return s.runProgram(t, olderProgram(t, "runlevel"), arguments...)
}

// runProgram runs a command line, and returns its output and exit code.
func (s *stage) runProgram(t testing.TB, program string, arguments ...string) (out string, code int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.sandbox.Kubeconfig)
	text, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), command.ProcessState.ExitCode()
}

// startOlder starts the older operator with a release. The function that it returns ends the operator.
func (s *stage) startOlder(t *testing.T, image string) (end func()) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "operator.yaml")
	s.must(os.WriteFile(config, []byte("lock-duration: 10s\nshard-count: 3\n"), 0o600))
	command := exec.Command(olderProgram(t, "runlevel-cluster"), "operator", "--release-image="+image,
		"--insecure-registry", "--config="+config)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.sandbox.Kubeconfig, "POD_NAME=older", "POD_NAMESPACE="+system)
	var log bytes.Buffer
	command.Stderr = &log
	s.must(command.Start())
	end = sync.OnceFunc(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	t.Cleanup(end)
	return end
}

// TestAnOlderProgramMeetsANewerRelease runs the rows of the table in docs/payload.md.
func TestAnOlderProgramMeetsANewerRelease(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	olderProgram(t, "runlevel") // or skips the test
	s.enableNone()
	s.prepare("1.0.0", shop+old)
	endOlder := s.startOlder(t, s.options.Payload)
	s.until("installed", isAt("1.0.0"))
	if c := find(s.version(), "ReleaseAccepted"); !strings.Contains(c.Message, "unknown flag shard-count") {
		t.Errorf("ReleaseAccepted does not report the unknown flag: %s", c.Message)
	}

	s.update(s.push("1.0.1", shop+newer))
	s.until("applied without the new field", func(v *configv1.ClusterVersion) bool {
		return has("Failing", configv1.ConditionTrue, "ManifestsLeftOut")(v) &&
			v.Status.History[0].State == configv1.PartialUpdate && containsAll(find(v, "Failing").Message,
			"manifests/0000_30_old_10_prices.yaml:4: its template can't be rendered: unknown field Images")
	})
	s.untilSettings("1.0.1")
	if prices := s.configMap("prices"); len(prices.Data) > 0 {
		t.Errorf("the object that was left out has %v", prices.Data)
	}
	endOlder()
	s.start()
	taken := s.until("the next operator completes the release", isAt("1.0.1"))
	if got := s.configMap("prices").Data["image"]; got != "none" || len(taken.Status.History) != 2 {
		t.Errorf("the object has %q, and the history %+v", got, taken.Status.History)
	}
	if enabled := taken.Status.Capabilities.EnabledCapabilities; !slices.Equal(enabled, console) {
		t.Errorf("the enabled capabilities are %v", enabled)
	}
	s.until("all is well", has("Failing", configv1.ConditionFalse, ""))
	s.must(s.end())

	t.Run("record", func(t *testing.T) { s.testNewerRecord(t) })
	t.Run("release", func(t *testing.T) { s.testFutureRelease(t) })
	t.Run("kept files", func(t *testing.T) { s.testNewerValues(t) })
	t.Run("format", func(t *testing.T) { s.testNewerFormat(t) })
}

// console are the capabilities of an object that had none when it was applied: it stays managed.
var console = []configv1.ClusterVersionCapability{configv1.ClusterVersionCapabilityConsole}

// newer has a field that the older programs do not know. No release before had its capability.
const newer = `
-- manifests/0000_30_old_10_prices.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: prices, namespace: shop, annotations: {capability.openshift.io/name: Console}}
data: {image: '{{with .Images}}some{{else}}none{{end}}'}
`

// theRecord returns the ConfigMap of the record.
func (s *stage) theRecord() *corev1.ConfigMap {
	s.t.Helper()
	var found corev1.ConfigMap
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: system, Name: "runlevel-release-default"}, &found))
	return &found
}

// testNewerRecord: an update by the older operator keeps a field of the record that it does not know.
func (s *stage) testNewerRecord(t *testing.T) {
	s.editRecord(func(known map[string]any) { known["future"] = "kept" })
	defer s.startOlder(t, s.options.Payload)()
	s.update(s.push("1.0.2", shop+old))
	s.until("updated", isAt("1.0.2"))
	if text := s.theRecord().Data["record.json"]; !strings.Contains(text, `"future"`) {
		t.Errorf("the record lost a field:\n%s", text)
	}
}

// testFutureRelease has parts that no program knows. The older operator applies the rest; the command line refuses each
// part with its line, and warns of annotations.
func (s *stage) testFutureRelease(t *testing.T) {
	end := s.startOlder(t, s.options.Payload)
	defer end()
	s.update(s.push("1.0.3", future+futureSettings))
	s.until("applied as far as it is known", func(v *configv1.ClusterVersion) bool {
		accepted := find(v, "ReleaseAccepted").Message
		return has("Failing", configv1.ConditionTrue, "ManifestsLeftOut")(v) &&
			containsAll(accepted, "unknown field Region",
				"before: Forbidden: unknown field", "unknown field regions", "unknown annotation runlevel.dev/shard-by")
	})
	folder := filepath.Join(t.TempDir(), "release")
	s.must(os.CopyFS(folder, s.release("1.0.3", future)))
	for _, verb := range []string{"render", "lint", "apply"} {
		out, code := s.runOlder(t, verb, folder)
		isRefused := containsAll(out, "0000_30_old_10_prices.yaml:4:", "unknown field Region: this runlevel knows "+
			".ClusterProfile, ", "0000_40_shop_10_web.yaml:6:", "before: Forbidden: unknown field: write one of pre,")
		if code == 0 || !isRefused {
			t.Errorf("%s ends with %d:\n%s", verb, code, out)
		}
	}
	annotated := filepath.Join(t.TempDir(), "annotated")
	s.must(os.CopyFS(annotated,
		s.release("1.0.3", shop+"-- 0000_40_shop_10_a.yaml --\n{apiVersion: v1, kind: ConfigMap, "+
			"metadata: {name: a, namespace: shop, annotations: {runlevel.dev/shard-by: zone}}}\n")))
	if out, code := s.runOlder(t, "render", annotated); code != 0 ||
		!strings.Contains(out, "unknown annotation runlevel.dev/shard-by has no effect: this runlevel knows ") {
		t.Errorf("render of an unknown annotation ends with %d:\n%s", code, out)
	}
	s.must(os.WriteFile(filepath.Join(annotated, payload.SettingsFile), []byte("regions: [eu]\n"), 0o600))
	for _, verb := range []string{"render", "lint", "apply"} {
		if out, code := s.runOlder(t, verb, annotated); code != 2 ||
			!containsAll(out, "runlevel.yaml:1: unknown field regions: it can have capabilities, ",
				"of a newer runlevel") {
			t.Errorf("%s with newer settings ends with %d:\n%s", verb, code, out)
		}
	}
}

// testNewerValues: the files of a version are kept with a value that may be a filter, so that they can't be read.
func (s *stage) testNewerValues(t *testing.T) {
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	packed, err := files.Pack(s.release("1.0.3", shop), []string{"release-manifests/0000_10_base_00_namespace.yaml"},
		[]byte(`{"name": "default", "filter": {"region": "eu"}}`))
	s.must(err)
	pieces, err := files.Store{
		Cluster:   c,
		Namespace: system,
		Release:   "default",
	}.Write(t.Context(), packed, "1.0.3", 99)
	s.must(err)
	store := record.NewStore(c.Client, system, payload.DefaultName)
	known, _, err := store.Load(t.Context())
	s.must(err)
	known.History[0].Files = &record.KeptFiles{Digest: packed.Digest, Pieces: pieces}
	s.must(store.Save(t.Context(), known))
	if out, code := s.runOlder(t, "render", "default@1.0.3"); code == 0 ||
		!containsAll(out, `unknown field "region"`, "written by a newer runlevel") {
		t.Errorf("render of the kept files ends with %d:\n%s", code, out)
	}
}

// testNewerFormat: nothing is written, and the status has the reason.
func (s *stage) testNewerFormat(t *testing.T) {
	s.editRecord(func(known map[string]any) { known["format"] = 2 })
	before := s.theRecord().ResourceVersion
	folder := filepath.Join(t.TempDir(), "release")
	s.must(os.CopyFS(folder, s.release("1.0.4", shop)))
	const want = "a newer runlevel wrote it, in format 2, and this one reads up to 1: use that one"
	for _, arguments := range [][]string{{"apply", folder, "--yes"}, {"uninstall", "default", "--yes"},
		{"rollback", "default"}} {
		if out, code := s.runOlder(t, arguments...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s ends with %d:\n%s", arguments, code, out)
		}
	}
	defer s.startOlder(t, s.options.Payload)()
	s.until("the operator keeps nothing in place", func(v *configv1.ClusterVersion) bool {
		c := find(v, "Failing")
		return c.Status == configv1.ConditionTrue && c.Reason == "RetrievePayloadFailed" &&
			strings.Contains(c.Message, want)
	})
	if s.theRecord().ResourceVersion != before {
		t.Error("the record was written")
	}
}
