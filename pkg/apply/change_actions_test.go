package apply_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// The applied objects: one of a kind without a generation, and one of a kind with it, whose ports have another order as
// numbers than as texts.
const (
	config = `
-- 0000_50_c_config.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS, labels: {mood: good}}, data: {colour: red}}
`
	deployed = `
-- 0000_50_c_workload.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: it, namespace: NS, labels: {mood: good}}
spec:
  replicas: 0
  selector: {matchLabels: {app: it}}
  template:
    metadata: {labels: {app: it}}
    spec: {containers: [{name: it, image: registry.example/it, ports: [{containerPort: 9}, {containerPort: 80}]}]}
`
	emptied = `{"metadata":{"labels":{"runlevel.dev/release":null}}}`
)

var resources = map[string]schema.GroupVersionResource{
	config:   {Version: "v1", Resource: "configmaps"},
	deployed: {Group: "apps", Version: "v1", Resource: "deployments"},
}

func TestActionsOfChangedObjects(t *testing.T) {
	for name, item := range map[string]struct {
		files string
		young bool   // it was applied in this very second
		looks string // what another manager writes before we look
		late  string // what another manager writes between the look and the apply
		part  string // part of the object that late changes
		want  object.Action
	}{
		"no write in between, no generation": {
			files: config,
			young: true,
			want:  object.Unchanged,
		},
		"no write in between": {files: deployed, young: true, want: object.Unchanged},
		"a restored value, no generation": {
			files: config,
			young: true,
			looks: `{"data":{"colour":"blue"}}`,
			want:  object.Configured,
		},
		"a restored value": {
			files: deployed,
			young: true,
			looks: `{"spec":{"replicas":1}}`,
			want:  object.Configured,
		},
		"a restored label": {
			files: deployed,
			young: true,
			looks: `{"metadata":{"labels":{"mood":"bad"}}}`,
			want:  object.Configured,
		},
		"a field of another manager, before": {
			files: config,
			young: true,
			looks: `{"data":{"size":"L"}}`,
			want:  object.Unchanged,
		},
		"a field of another manager, in between, no generation": {
			files: config,
			late:  `{"data":{"size":"L"}}`,
			want:  object.Unchanged,
		},
		"a field of another manager, in between": {
			files: deployed,
			late:  `{"spec":{"paused":true}}`,
			want:  object.Unchanged,
		},
		"its status, in between": {
			files: deployed,
			young: true,
			late:  `{"status":{"observedGeneration":7}}`,
			part:  "status",
			want:  object.Unchanged,
		},
		"a label of another manager, in between": {
			files: deployed,
			young: true,
			late:  `{"metadata":{"labels":{"theirs":"yes"}}}`,
			want:  object.Unchanged,
		},
		"a restored value, changed in between, no generation": {
			files: config,
			late:  `{"data":{"colour":"blue"}}`,
			want:  object.Configured,
		},
		"a restored value, changed just now, no generation": {
			files: config,
			young: true,
			late:  `{"data":{"colour":"blue"}}`,
			want:  object.Configured,
		},
		"a restored value, changed in between": {
			files: deployed,
			late:  `{"spec":{"replicas":1}}`,
			want:  object.Configured,
		},
		"a restored value, changed just now": {
			files: deployed,
			young: true,
			late:  `{"spec":{"replicas":1}}`,
			want:  object.Configured,
		},
		"a restored label, changed in between": {
			files: deployed,
			late:  `{"metadata":{"labels":{"mood":"bad"}}}`,
			want:  object.Configured,
		},
		"it exists without our label, and is equal otherwise": {
			files: config,
			looks: emptied,
			want:  object.Configured,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			release := load(t, namespace, namespace, item.files)
			if did := run(t, t.Context(), release,
				apply.Options{Options: updateMode, NoWait: true}); did.Changes[0].Action != object.Created {
				t.Fatalf("got first change %+v, want action %s", did.Changes[0], object.Created)
			}
			their := theirs{t, resources[item.files], namespace}
			if !item.young {
				their.age()
			}
			their.write(item.looks)
			var once sync.Once
			c := connectThrough(t, func(request *http.Request) error {
				if request.Method == http.MethodPatch {
					once.Do(func() { their.write(item.late, strings.Fields(item.part)...) })
				}
				return nil
			})
			did := runOn(t, t.Context(), c, release, apply.Options{
				Options: object.Options{Mode: graph.Update, Full: true},
				NoWait:  true,
			})
			if got := did.Changes[0]; got.Action != item.want || did.Err != nil {
				t.Errorf("got action %s, want %s: %v", got.Action, item.want, did.Err)
			}
		})
	}
}

// theirs writes an object of the release as another manager.
type theirs struct {
	*testing.T
	resource  schema.GroupVersionResource
	namespace string
}

func (t theirs) objects() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(test.Sandbox(t).Config).Resource(t.resource).Namespace(t.namespace)
}

func (t theirs) write(patch string, part ...string) {
	t.Helper()
	if patch == "" {
		return
	}
	if _, err := t.objects().Patch(t.Context(), "it", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "bob"}, part...); err != nil {
		t.Error(err)
	}
}

// age changes the object so that it was applied an hour ago. Times alone can't be changed.
func (t theirs) age() {
	t.Helper()
	object, err := t.objects().Get(t.Context(), "it", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := json.Marshal(object.GetManagedFields())
	if err != nil {
		t.Fatal(err)
	}
	ago := time.Now().Add(-time.Hour)
	for _, entry := range object.GetManagedFields() {
		entries = bytes.ReplaceAll(entries, []byte(entry.Time.UTC().Format(time.RFC3339)),
			[]byte(ago.UTC().Format(time.RFC3339)))
	}
	patched, err := t.objects().Patch(t.Context(), "it", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"managedFields":%s,"annotations":{"theirs":"yes"}}}`, entries),
		metav1.PatchOptions{FieldManager: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	if !isOld(patched) {
		t.Fatalf("it did not grow old: %v", patched.GetManagedFields())
	}
}

func isOld(object *unstructured.Unstructured) bool {
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == "runlevel" {
			return time.Since(entry.Time.Time) > time.Minute
		}
	}
	return false
}
