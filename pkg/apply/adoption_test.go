package apply_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// An object that another tool has created. The release removes its key old, and adds the key new.
const ofTheTool = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS, labels: {tool: "yes"}}, data: {colour: red, old: "1"}}
`

const settings = `
-- 0000_10_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: blue, new: "1"}}
`

// whole is the data of the settings in the release, without the fields of another tool.
const whole = `{"colour":"blue","new":"1"}`

// tools create an object as each of the tools does from which objects are adopted.
var tools = map[string]func(t *testing.T, text string){
	"kubectl-client-side-apply": func(t *testing.T, text string) {
		act(t, "kubectl-client-side-apply").kubectlApply(text)
	},
	"kubectl-create": func(t *testing.T, text string) { act(t, "kubectl-create").create(text) },
	"helm":           func(t *testing.T, text string) { act(t, "helm").create(text) },
	"cluster-version-operator": func(t *testing.T, text string) { // it updates the whole object that it has read
		a := act(t, "cluster-version-operator")
		object := a.create(strings.Replace(text, "colour: red", "colour: pink", 1))
		object.Object["data"].(map[string]any)["colour"] = "red"
		place, _ := a.place("ConfigMap", object.GetNamespace()+"/"+object.GetName())
		if _, err := place.Update(t.Context(), object, metav1.UpdateOptions{FieldManager: a.manager}); err != nil {
			t.Fatal(err)
		}
	},
}

func TestObjectOfAnotherToolIsAdopted(t *testing.T) {
	for tool, makes := range tools {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			key, other := namespace+"/settings", act(t, "controller")
			makes(t, strings.ReplaceAll(ofTheTool, "NS", namespace))
			other.merge("ConfigMap", key, `{data: {theirs: "1"}, metadata: {labels: {controller: "yes"}}}`)
			release := load(t, namespace, namespace, settings)
			did := run(t, t.Context(), release, apply.Options{Options: installMode})
			if did.Err != nil {
				t.Fatal(did.Err)
			}
			if have := other.field("ConfigMap", key, "data"); have != `{"colour":"blue","new":"1","theirs":"1"}` {
				t.Error("got data", have)
			}
			if have, want := other.field("ConfigMap", key, "metadata",
				"labels"), `{"controller":"yes","runlevel.dev/release":"`+namespace+`"}`; have != want {
				t.Error("got labels", have)
			}
			if diff := cmp.Diff("adopted ConfigMap NS/settings: from "+tool+"\n",
				did.eventText(namespace, apply.Adopted, apply.Overruled)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{tool}, did.Changes[0].Adopted); diff != "" {
				t.Error(diff)
			}

			// Who writes again later, keeps what they write: that was the first touch.
			act(t, tool).merge("ConfigMap", key, `{data: {later: "1"}}`)
			version := other.live("ConfigMap", key).GetResourceVersion()
			did = run(t, t.Context(), release, apply.Options{Options: object.Options{Mode: graph.Update, Full: true}})
			if have := did.actions() +
				did.eventText(namespace, apply.Adopted, apply.Overruled); !strings.HasPrefix(have,
				"unchanged ConfigMap") ||
				strings.Count(have, "\n") != 1 || did.Err != nil {
				t.Error(did.Err, have)
			}
			if live := other.live("ConfigMap", key); live.GetResourceVersion() != version ||
				other.field("ConfigMap", key, "data", "later") != `"1"` {
				t.Error("the apply has written the object:", live.Object["data"])
			}
		})
	}
}

func TestFurtherToolsAreAdoptedIfAskedFor(t *testing.T) {
	for name, row := range map[string]struct {
		from []string
		want string
	}{
		"not requested": {nil, `{"colour":"blue","new":"1","old":"1"}`},
		"requested":     {[]string{"installer"}, whole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			installer := act(t, "installer")
			installer.create(strings.ReplaceAll(ofTheTool, "NS", namespace))
			did := run(t, t.Context(), load(t, namespace, namespace, settings),
				apply.Options{Options: object.Options{Mode: graph.Update, AdoptFrom: row.from}})
			if have := installer.field("ConfigMap", namespace+"/settings", "data"); have != row.want || did.Err != nil {
				t.Error(did.Err, have)
			}
			want := "overruled ConfigMap NS/settings: data.colour (installer)\n"
			if row.from != nil {
				want = "adopted ConfigMap NS/settings: from installer\n"
			}
			if diff := cmp.Diff(want, did.eventText(namespace, apply.Adopted, apply.Overruled)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A run dies after it has adopted an object, and before it has applied it.
func TestKilledBetweenAdoptionAndApply(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-client-side-apply")
	a.kubectlApply(strings.ReplaceAll(ofTheTool, "NS", namespace))
	release, isAdopted := load(t, namespace, namespace, settings), false
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method != http.MethodPatch || !strings.HasSuffix(request.URL.Path, "/configmaps/settings") {
			return nil
		}
		if isAdopted {
			cancel()
			return errors.New("the connection is dead")
		}
		isAdopted = request.Header.Get("Content-Type") == string(types.JSONPatchType)
		return nil
	})
	if did := runOn(t, ctx, c, release, apply.Options{Options: installMode}); did.Err == nil || !isAdopted {
		t.Fatal(did.Err, isAdopted)
	}
	if have := a.field("ConfigMap", namespace+"/settings", "data"); have != `{"colour":"red","old":"1"}` {
		t.Fatal("the killed run has applied the object:", have)
	}
	did := run(t, t.Context(), release, apply.Options{Options: installMode})
	if have := a.field("ConfigMap", namespace+"/settings", "data"); have != whole || did.Err != nil {
		t.Error(did.Err, have)
	}
}

// If the apply after an adoption fails, it is retried, and still reports the former manager.
func TestAdoptionIsReportedAfterAFailedApply(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "helm")
	a.create(strings.ReplaceAll(ofTheTool, "NS", namespace))
	failed := false
	c := connectBy(t, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		isOurs := strings.HasSuffix(request.URL.Path, "/configmaps/settings") && request.Method == http.MethodPatch
		if isOurs && !failed && request.Header.Get("Content-Type") == string(types.ApplyPatchType) &&
			a.owners("ConfigMap", namespace+"/settings", "f:data", "f:old") == "runlevel" {
			failed = true
			return answered(request, apierrors.NewServiceUnavailable("a moment")), nil
		}
		return send.RoundTrip(request)
	})
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, settings), apply.Options{Options: installMode})
	if did.Err != nil || !failed {
		t.Fatal(did.Err, failed)
	}
	if got := did.eventText(namespace, apply.Adopted); got != "adopted ConfigMap NS/settings: from helm\n" ||
		len(did.Changes[0].Adopted) != 1 {
		t.Errorf("got events %q, adopted from %v", got, did.Changes[0].Adopted)
	}
}

// If an object is deleted during its adoption, the apply creates it.
func TestObjectDeletedDuringAdoptionIsCreated(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "helm")
	a.create(strings.ReplaceAll(ofTheTool, "NS", namespace))
	c := connectThrough(t, func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/configmaps/settings") &&
			request.Header.Get("Content-Type") == string(types.JSONPatchType) {
			return test.Client(t).CoreV1().ConfigMaps(namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{})
		}
		return nil
	})
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, settings), apply.Options{Options: installMode})
	if did.Err != nil || did.eventText(namespace, apply.Adopted) != "" {
		t.Error(did.Err, did.eventText(namespace, apply.Adopted))
	}
	if have := a.field("ConfigMap", namespace+"/settings", "data", "colour"); have == "" {
		t.Error("the object was not created")
	}
}

// Another client writes the object during its adoption.
func TestAdoptionWithAConflictIsRetried(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-create")
	a.create(strings.ReplaceAll(ofTheTool, "NS", namespace))
	var once sync.Once
	c := connectThrough(t, func(request *http.Request) error {
		if request.Header.Get("Content-Type") == string(types.JSONPatchType) {
			once.Do(func() { act(t, "controller").merge("ConfigMap", namespace+"/settings", `{data: {theirs: "1"}}`) })
		}
		return nil
	})
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, settings), apply.Options{Options: installMode})
	if have := a.field("ConfigMap", namespace+"/settings",
		"data"); have != `{"colour":"blue","new":"1","theirs":"1"}` || did.Err != nil {
		t.Error(did.Err, have)
	}
	if got := did.eventText(namespace, apply.Adopted, apply.Retrying); got != "adopted ConfigMap NS/settings: from "+
		"kubectl-create\n" {
		t.Errorf("got events %q", got)
	}
}

// TestObjectThatAnotherReleaseTakesMeanwhile: the apply does not change it, though it was this release's when the apply
// read it.
func TestObjectThatAnotherReleaseTakesMeanwhile(t *testing.T) {
	t.Parallel()
	namespace, other := test.Namespace(t), act(t, "kubectl-edit")
	if did := run(t, t.Context(), load(t, namespace, namespace, settings),
		apply.Options{Options: installMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	take := sync.OnceFunc(func() {
		other.merge("ConfigMap", namespace+"/settings",
			`{metadata: {labels: {runlevel.dev/release: other}}, data: {colour: red}}`)
	})
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/configmaps/settings") {
			take()
		}
		return nil
	})
	changed := strings.Replace(settings, "blue", "green", 1)
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, changed), apply.Options{})
	if did.Err == nil || !strings.Contains(did.Err.Error(), "already owned by release other") {
		t.Error(did.Err)
	}
	if colour := other.field("ConfigMap", namespace+"/settings", "data", "colour"); colour != `"red"` {
		t.Errorf("the apply has changed the colour of the other release's object to %s", colour)
	}
}

// An apply does not write the object of another release, also not the owners of its fields.
func TestObjectOfAnotherReleaseIsNotAdopted(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-client-side-apply")
	other := load(t, namespace+"-other", namespace, settings)
	if did := run(t, t.Context(), other, apply.Options{Options: installMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	a.merge("ConfigMap", namespace+"/settings", `{data: {colour: red}}`)
	version := a.live("ConfigMap", namespace+"/settings").GetResourceVersion()
	did := run(t, t.Context(), load(t, namespace, namespace, settings), apply.Options{Options: installMode})
	if did.Err == nil || !strings.Contains(did.Err.Error(), "already owned by release "+namespace+"-other") {
		t.Error(did.Err)
	}
	if a.live("ConfigMap", namespace+"/settings").GetResourceVersion() != version {
		t.Error("the apply has written the object")
	}
}
