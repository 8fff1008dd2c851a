package cluster_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// The API server refuses an event whose message is too long.
func TestAnnounceCutsLongNews(t *testing.T) {
	t.Parallel()
	c, err := cluster.Connect(testbed.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	namespace := testbed.Namespace(t)
	for _, message := range []string{"short", strings.Repeat("long… ", 500)} {
		err := cluster.RecordEvent(t.Context(), c, cluster.ObjectEvent{
			ID: kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: "web"}, UID: "1", Reason: "Tested",
			IsWarning: true, Message: message,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	found, err := testbed.Client(t).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(found.Items) != 2 {
		t.Fatal(err, found)
	}
	for _, event := range found.Items {
		isCut := strings.HasPrefix(event.Message, "long… long…") && strings.HasSuffix(event.Message, "…") &&
			utf8.ValidString(event.Message)
		if event.Type != corev1.EventTypeWarning || event.Message != "short" && !isCut {
			t.Errorf("%s: %q", event.Type, event.Message)
		}
	}
}
