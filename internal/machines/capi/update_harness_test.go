package capi_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

const (
	inProgress = clusterv1.UpdateInProgressAnnotation
	done       = `{"status":"Success","retryAfterSeconds":0}`
)

// An updateScene contains a Machine that runs, with a bootstrap config, and an extension that updates it. The test is
// the owner of the Machine: it has the desired state of the Machine.
type updateScene struct {
	*scene
	*runtimehooktest.Extension
	config *runtimev1.ExtensionConfig
	m      *clusterv1.Machine

	mu sync.Mutex
	at []time.Time // times of the calls
}

// startUpdates adds an extension and a Machine to a scene.
func startUpdates(s *scene, settings map[string]string) *updateScene {
	s.Helper()
	u := &updateScene{scene: s, Extension: runtimehooktest.New(s)}
	u.config = &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	u.config.Spec.ClientConfig = u.ClientConfig()
	u.config.Spec.Settings = settings
	u.config.Spec.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.Namespace},
	}
	s.MustCreate(u.config)
	u.config.Status.Handlers = []runtimev1.ExtensionHandler{{
		Name: "update-machine." + u.config.Name, TimeoutSeconds: 5, FailurePolicy: runtimev1.FailurePolicyFail,
		RequestHook: runtimev1.GroupVersionHook{APIVersion: hooksv1.GroupVersion.String(), Hook: "UpdateMachine"},
	}}
	u.discover()
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infra.example.com/v1", "kind": "TestConfig",
		"status": map[string]any{"initialization": map[string]any{"dataSecretCreated": true}, "dataSecretName": "made"},
	}}
	config.SetNamespace(s.Namespace)
	config.SetName("m1")
	s.MustCreate(config)
	u.m = s.machine("m1")
	u.m.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: s.ref("TestConfig", "m1")}
	u.m, _ = s.run(u.m)
	return u
}

// discover records that the current ExtensionConfig is discovered.
func (u *updateScene) discover() {
	u.Helper()
	meta.SetStatusCondition(&u.config.Status.Conditions, metav1.Condition{
		Type: runtimev1.ExtensionConfigDiscoveredCondition, Status: metav1.ConditionTrue, Reason: "Discovered",
		ObservedGeneration: u.config.Generation,
	})
	u.Must(u.Status().Update(u.Context(), u.config))
}

// answers makes the extension give these answers, one after the other, and the last one from then on.
func (u *updateScene) answers(texts ...string) {
	u.Serve("UpdateMachine", func(w http.ResponseWriter, _ *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.at = append(u.at, time.Now())
		_, _ = io.WriteString(w, texts[0])
		texts = texts[min(1, len(texts)-1):]
	})
}

// trigger requests an update of the Machine as its owner does: it marks the Machine, then writes the objects that the
// Machine refers to.
func (u *updateScene) trigger(size int) {
	u.Helper()
	mark := `"metadata": {"annotations": {"` + inProgress + `": ""}}`
	u.MustPatch(u.m, `{%s}`, mark)
	u.MustPatch(u.infrastructure(), `{%s, "spec": {"size": %d}}`, mark, size)
	u.MustPatch(u.object("TestConfig", "m1"), `{%s}`, mark)
	u.MustPatch(u.m, `{"metadata": {"annotations": {"`+runtimev1.PendingHooksAnnotation+`": "UpdateMachine"}}}`)
}

// awaitUpdating waits until the condition Updating has a reason, and a message with a text in it.
func (u *updateScene) awaitUpdating(reason, text string) *clusterv1.Machine {
	u.Helper()
	return u.await("m1", func(m *clusterv1.Machine) bool {
		updating := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineUpdatingCondition)
		return updating != nil && updating.Reason == reason && strings.Contains(updating.Message, text)
	})
}

// awaitUpdated waits until the update has ended, and its annotations are removed.
func (u *updateScene) awaitUpdated() *clusterv1.Machine {
	u.Helper()
	return u.await("m1", func(m *clusterv1.Machine) bool {
		left := len(m.Annotations)
		for _, kind := range []string{"TestMachine", "TestConfig"} {
			if _, isMarked := u.object(kind, "m1").GetAnnotations()[inProgress]; isMarked {
				left++
			}
		}
		return left == 0 && m.Status.Phase == "Running" &&
			meta.IsStatusConditionTrue(m.Status.Conditions, "Available") &&
			meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineUpdatingCondition)
	})
}

// calls returns when the extension was called.
func (u *updateScene) calls() []time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]time.Time(nil), u.at...)
}

// awaitCalls waits until the extension was called so often.
func (u *updateScene) awaitCalls(n int) {
	u.Helper()
	u.await("m1", func(*clusterv1.Machine) bool { return len(u.calls()) >= n })
}

// node reads the Node of the Machine.
func (u *updateScene) node() *unstructured.Unstructured {
	u.Helper()
	node := &unstructured.Unstructured{}
	node.SetAPIVersion("v1")
	node.SetKind("Node")
	u.Must(u.Get(u.Context(), client.ObjectKey{Name: u.m.Status.NodeRef.Name}, node))
	return node
}

// A writeCut breaks the connection of a controller at one of its writes, as if it died. The zero value breaks none.
type writeCut struct {
	mu       sync.Mutex
	at       int  // the write, from now on, with which the connection fails; 0 is never
	isLate   bool // whether that write is executed and only its response is lost
	isFailed bool
}

var errCut = errors.New("the connection was cut")

// arm breaks the connection at a later write.
func (w *writeCut) arm(number int, isLate bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.isLate, w.isFailed = number, isLate, false
}

// hasFailed reports whether the write was cut.
func (w *writeCut) hasFailed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isFailed
}

// tap sends a request on, unless the connection has failed.
func (w *writeCut) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	isWrite := request.Method != http.MethodGet && !strings.HasSuffix(request.URL.Path, "/events")
	w.mu.Lock()
	if w.isFailed {
		w.mu.Unlock()
		return nil, errCut
	}
	isLast := isWrite && w.at == 1
	if isWrite && w.at > 0 {
		w.at--
	}
	isLate := w.isLate
	w.isFailed = isLast
	w.mu.Unlock()
	if isLast && !isLate {
		return nil, errCut
	}
	response, err := send.RoundTrip(request)
	if isLast && err == nil {
		_ = response.Body.Close()
		return nil, errCut
	}
	return response, err
}
