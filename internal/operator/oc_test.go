package operator_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/install"
)

// ocEnv names the program of OpenShift's own client, which reads the ClusterVersion.
const ocEnv = "RUNLEVEL_TEST_OC"

// needsOC skips a test where OpenShift's client is not there.
func needsOC(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(os.Getenv(ocEnv)); err != nil || !filepath.IsAbs(os.Getenv(ocEnv)) {
		t.Skip("set " + ocEnv + " to oc, to try it on an operator")
	}
}

// oc runs OpenShift's client, and returns its output.
func (s *stage) oc(arguments ...string) string {
	s.t.Helper()
	out, err := s.tryOC(arguments...)
	if err != nil {
		s.t.Fatalf("oc %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return out
}

// tryOC runs OpenShift's client with the verbs that it does not enable yet, and returns its output.
func (s *stage) tryOC(arguments ...string) (string, error) {
	command := exec.CommandContext(s.t.Context(), os.Getenv(ocEnv), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.sandbox.Kubeconfig, "OC_ENABLE_CMD_UPGRADE_STATUS=true",
		"OC_ENABLE_CMD_UPGRADE_ACCEPT_RISKS=true", "OC_ENABLE_CMD_UPGRADE_ROLLBACK=true")
	out, err := command.CombinedOutput()
	return string(out), err
}

// dump writes what "oc adm upgrade status" reads of a cluster to files, and returns that of the ClusterVersion. There
// are no MachineConfigPools on plain Kubernetes, and nodes of none are left out.
func (s *stage) dump() string {
	s.t.Helper()
	folder := s.t.TempDir()
	const none = "apiVersion: v1\nkind: List\nitems: []\n"
	for name, text := range map[string]string{
		"cv.yaml":  s.oc("get", "clusterversion", "version", "-o", "yaml"),
		"co.yaml":  s.oc("get", "clusteroperators", "-o", "yaml"),
		"mcp.yaml": none, "mc.yaml": none, "node.yaml": none,
	} {
		s.must(os.WriteFile(filepath.Join(folder, "now-"+name), []byte(text), 0o600))
	}
	return filepath.Join(folder, "now-cv.yaml")
}

// expectLines fails the test unless a text has all expected lines.
func expectLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

// TestOpenShiftsClient updates a cluster with oc, as an administrator of OpenShift does. The policy that guards
// ClusterVersions lets an administrator pass.
func TestOpenShiftsClient(t *testing.T) {
	t.Parallel()
	needsOC(t)
	s := begin(t, "1.0.0", shop+till)
	for _, object := range install.Objects() {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			s.must(s.client.Create(t.Context(), object))
		}
	}
	s.until("it waits for the ClusterOperator", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, configv1.OperatorProgressing).Message, "till")
	})
	expectLines(t, s.oc("adm", "upgrade"), "info: An upgrade is in progress. ", "Reason: ClusterVersionUpdating")
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	expectLines(t, s.oc("adm", "upgrade"), "Cluster version is 1.0.0")
	expectLines(t, s.oc("get", "clusterversion,clusteroperators"), "Cluster version is 1.0.0",
		"till   1.0.0     True        False         False")

	s.oc("adm", "upgrade", "--to-image", s.push("1.0.1", shop+till), "--allow-explicit-upgrade", "--force")
	s.until("it waits for the ClusterOperator", func(v *configv1.ClusterVersion) bool {
		return strings.HasSuffix(find(v, configv1.OperatorProgressing).Message, "waiting on till")
	})
	expectLines(t, s.oc("adm", "upgrade", "status", "--mock-clusterversion="+s.dump()), "Assessment:      Progressing",
		"Target Version:  1.0.1 (from 1.0.0)", "Completion:      0% (0 operators updated, 0 updating, 1 waiting)",
		"= Update Health =")
	s.report("till", "1.0.1")
	s.until("updated", isAt("1.0.1"))
	expectLines(t, s.oc("adm", "upgrade", "status", "--mock-clusterversion="+s.dump()), "The cluster is not updating.")
	repository, _, _ := strings.Cut(s.options.Payload, "@")
	s.oc("adm", "upgrade", "--to-image", repository+"@sha256:"+strings.Repeat("c", 64), "--allow-explicit-upgrade")
	s.until("the image is not there", has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload"))
	expectLines(t, s.oc("adm", "upgrade"), "ReleaseAccepted=False", "Reason: RetrievePayload")
	s.oc("adm", "upgrade", "--clear")
	s.until("taken back", has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded"))
	s.oc("delete", "--wait=false", "clusteroperator", "till")
	s.report("till", "1.0.1") // the operator has recreated the ClusterOperator
	expectLines(t, s.oc("adm", "upgrade"), "Cluster version is 1.0.1")
}
