package operator_test

import (
	"regexp"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// mask replaces the parts that differ from run to run.
var mask = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+/team/release@sha256:[0-9a-f]{64}`), "IMAGE"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "DIGEST"},
	{regexp.MustCompile(`Duration: .*`), "Duration: TIME"},
	{regexp.MustCompile(`\d+y   \d+y`), "AGE"},
	{regexp.MustCompile(`(\d+s|now) +Info`), "AGE Info"},
	{regexp.MustCompile(`still stable after \d+s`), "still stable after TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`(http://)?127\.0\.0\.1:\d+`), "SERVICE"},
	{regexp.MustCompile(`(?m)^W\d{4} .*\] `), "WARNING "},
	{regexp.MustCompile(`(True|False) +(?:\d+[hms])+( +|\n)`), "$1 AGE$2"},
	{regexp.MustCompile(`AGE +`), "AGE "},
	{regexp.MustCompile(`\d+ of (\d+) done \(\d+% complete\)`), "N of $1 done (P% complete)"},
}

// A diary has the output of OpenShift's client at several moments of a cluster's life.
type diary struct {
	*stage
	names   map[string]string // the actual values of names such as IMAGE-1.0.0, in commands and output
	archive txtar.Archive
}

// note adds the present output.
func (d *diary) note(moment string) {
	d.t.Helper()
	d.add(moment, d.oc("get", "clusterversion,clusteroperators")+"\n"+d.oc("adm", "upgrade"))
}

// add adds output.
func (d *diary) add(moment, text string) {
	for name, actual := range d.names {
		text = strings.ReplaceAll(text, actual, name)
	}
	for _, item := range mask {
		text = item.what.ReplaceAllString(text, item.by)
	}
	d.archive.Files = append(d.archive.Files, txtar.File{Name: moment, Data: []byte(strings.TrimSpace(text) + "\n\n")})
}

// waitsFor returns a test of the message of Progressing.
func waitsFor(words string) func(*configv1.ClusterVersion) bool {
	return func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, configv1.OperatorProgressing).Message, words)
	}
}

// TestOutputOfOpenShiftsClient compares the output with that of the cluster-version operator, as recorded during an
// install, and a broken, a blocked, a slow and a finished update. docs/status.md explains the differences.
func TestOutputOfOpenShiftsClient(t *testing.T) {
	t.Parallel()
	needsOC(t)
	const alpha, gates = `
-- 0000_20_alpha_10_operator.yaml --
{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: alpha}, status: {versions: [{name: operator, version: VERSION}]}}
`, `
-- 0000_10_base_10_gates.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-config-managed}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-config}}
`
	beta := strings.ReplaceAll(strings.ReplaceAll(alpha, "alpha", "beta"), "0000_20", "0000_40")
	files := shop + gates + alpha + beta
	degraded := func(o *configv1.ClusterOperatorStatus) { o.Conditions[1].Status = configv1.ConditionTrue }
	progressing := func(o *configv1.ClusterOperatorStatus) { o.Conditions[2].Status = configv1.ConditionTrue }

	d := &diary{stage: begin(t, "1.0.0", files+old)}
	d.until("waiting", waitsFor("alpha, beta are not available"))
	d.note("01 an install waits for the first operator")
	d.report("alpha", "1.0.0")
	d.report("beta", "1.0.0", degraded)
	d.until("degraded", waitsFor("beta is degraded"))
	d.note("03 the second operator is degraded")
	d.report("beta", "1.0.0")
	d.until("installed", isAt("1.0.0"))
	d.note("04 installed")

	gate := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config-managed", Name: "admin-gates"},
		Data:       map[string]string{"ack-1.0-prices": "prices v1 goes"},
	}
	d.must(d.client.Create(t.Context(), gate))
	d.until("gated", has(configv1.OperatorUpgradeable, configv1.ConditionFalse, "AdminAck"))
	d.note("07 an admin gate")
	d.must(d.client.Delete(t.Context(), gate))
	d.until("not gated", func(v *configv1.ClusterVersion) bool {
		return find(v, configv1.OperatorUpgradeable).Type == ""
	})

	repository, _, _ := strings.Cut(d.options.Payload, "@")
	d.update(repository + "@sha256:" + strings.Repeat("c", 64))
	d.until("broken", has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload"))
	d.note("09 an update to a missing image")
	d.ask(nil)
	d.until("taken back", has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded"))
	d.note("11 it is taken back")
	d.ask(&configv1.Update{Version: "9.9.9"})
	d.until("unknown", has("Invalid", configv1.ConditionTrue, "InvalidClusterVersion"))
	d.note("12 an update to an unknown version")

	d.hold("prices", `["example.com/hold"]`)
	d.update(d.push("1.0.1", files+oldDeleted))
	d.until("updating", waitsFor("1.0.1"))
	d.report("alpha", "1.0.0", progressing)
	d.until("progressing", waitsFor("waiting on alpha"))
	d.note("14 the first operator is progressing")
	d.report("alpha", "1.0.1")
	d.report("beta", "1.0.0", degraded)
	d.until("slow", waitsFor("waiting up to 40 minutes on beta"))
	d.note("16 the second operator is degraded")
	d.report("beta", "1.0.1")
	d.until("updated", isAt("1.0.1"))
	d.until("held", has(configv1.OperatorUpgradeable, configv1.ConditionFalse, "ResourceDeletionInProgress"))
	d.note("18 updated, and a delete is held")
	d.restart()
	d.update(d.push("1.1.0", files))
	d.until("blocked", has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	d.note("19 the next minor version is blocked, by another process")
	transcript.Expect(d.t, "testdata/oc.txtar", d.archive.Files)
}
