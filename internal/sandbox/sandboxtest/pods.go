package sandboxtest

import (
	"encoding/json"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EndPod ends a running pod with an exit code. A pod with the variable SANDBOX_POD=run runs until then.
func (c *SharedSandbox) EndPod(t testing.TB, namespace, name string, exitCode int) {
	t.Helper()
	c.annotatePod(t, namespace, name, "exit-code", strconv.Itoa(exitCode))
}

// LogPod replaces the log of a running pod. A client that follows the log reads the lines beyond those it has
// read.
func (c *SharedSandbox) LogPod(t testing.TB, namespace, name, text string) {
	t.Helper()
	c.annotatePod(t, namespace, name, "log", text)
}

// annotatePod sets an annotation of the sandbox on a pod.
func (c *SharedSandbox) annotatePod(t testing.TB, namespace, name, what, value string) {
	t.Helper()
	object := map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{"sandbox.runlevel.dev/" + what: value}},
	}
	patch, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(t).CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
