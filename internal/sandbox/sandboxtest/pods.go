package sandboxtest

import (
	"encoding/json"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EndPod has a running pod end with an exit code. A pod that is to run until then is told so by the variable
// SANDBOX_POD with the value "run".
func (c *SharedSandbox) EndPod(t testing.TB, namespace, name string, exitCode int) {
	t.Helper()
	c.tellPod(t, namespace, name, "exit-code", strconv.Itoa(exitCode))
}

// LogPod replaces what a running pod has written to its log. A client that follows the log reads the lines that are
// more than before.
func (c *SharedSandbox) LogPod(t testing.TB, namespace, name, text string) {
	t.Helper()
	c.tellPod(t, namespace, name, "log", text)
}

// tellPod puts an annotation of the sandbox on a pod.
func (c *SharedSandbox) tellPod(t testing.TB, namespace, name, what, value string) {
	t.Helper()
	told := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"sandbox.runlevel.dev/" + what: value}}}
	patch, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(t).CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
