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

// What another tool has made: old is to go, and new to come.
const ofTheTool = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS, labels: {tool: "yes"}}, data: {colour: red, old: "1"}}
`

const settings = `
-- 0000_10_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: blue, new: "1"}}
`

// whole is all that the release says of the settings, and nothing of another tool.
const whole = `{"colour":"blue","new":"1"}`

// tools are those that objects are adopted from, each as it makes them.
var tools = map[string]func(t *testing.T, text string){
	"kubectl-client-side-apply": func(t *testing.T, text string) {
		act(t, "kubectl-client-side-apply").kubectlApply(text)
	},
	"kubectl-create": func(t *testing.T, text string) { act(t, "kubectl-create").create(text) },
	"helm":           func(t *testing.T, text string) { act(t, "helm").create(text) },
	"cluster-version-operator": func(t *testing.T, text string) { // which updates all of what it has read
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
				t.Error("its data are", have)
			}
			if have, want := other.field("ConfigMap", key, "metadata",
				"labels"), `{"controller":"yes","runlevel.dev/release":"`+namespace+`"}`; have != want {
				t.Error("its labels are", have)
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
				t.Error("it was written:", live.Object["data"])
			}
		})
	}
}

func TestFurtherToolsAreAdoptedIfAskedFor(t *testing.T) {
	for name, row := range map[string]struct {
		from []string
		want string
	}{
		"not asked for": {nil, `{"colour":"blue","new":"1","old":"1"}`},
		"asked for":     {[]string{"installer"}, whole},
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
		t.Fatal("it was applied all the same:", have)
	}
	did := run(t, t.Context(), release, apply.Options{Options: installMode})
	if have := a.field("ConfigMap", namespace+"/settings", "data"); have != whole || did.Err != nil {
		t.Error(did.Err, have)
	}
}

// An apply that fails after the adoption is tried again, and still says whom it was from.
func TestAdoptionIsReportedAfterAFailedTry(t *testing.T) {
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
	if told := did.eventText(namespace, apply.Adopted); told != "adopted ConfigMap NS/settings: from helm\n" ||
		len(did.Changes[0].Adopted) != 1 {
		t.Error(told, did.Changes[0].Adopted)
	}
}

// What is deleted while we adopt it is made.
func TestAdoptionOfWhatIsGone(t *testing.T) {
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
		t.Error("it was not made")
	}
}

// Others write while we adopt.
func TestAdoptionThatLosesARaceIsTriedAgain(t *testing.T) {
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
	if told := did.eventText(namespace, apply.Adopted, apply.Retrying); told != "adopted ConfigMap NS/settings: from "+
		"kubectl-create\n" {
		t.Error(told)
	}
}

// TestAnObjectThatAnotherReleaseTakesMeanwhile is left to it, though it was this release's when the apply looked.
func TestAnObjectThatAnotherReleaseTakesMeanwhile(t *testing.T) {
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
	if did.Err == nil || !strings.Contains(did.Err.Error(), "it is of release other") {
		t.Error(did.Err)
	}
	if colour := other.field("ConfigMap", namespace+"/settings", "data", "colour"); colour != `"red"` {
		t.Errorf("the colour of the other release is %s now", colour)
	}
}

// Nothing of another release's object is touched, not even who owns its fields.
func TestNothingOfAnotherReleaseIsAdopted(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-client-side-apply")
	other := load(t, namespace+"-other", namespace, settings)
	if did := run(t, t.Context(), other, apply.Options{Options: installMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	a.merge("ConfigMap", namespace+"/settings", `{data: {colour: red}}`)
	version := a.live("ConfigMap", namespace+"/settings").GetResourceVersion()
	did := run(t, t.Context(), load(t, namespace, namespace, settings), apply.Options{Options: installMode})
	if did.Err == nil || !strings.Contains(did.Err.Error(), "it is of release "+namespace+"-other") {
		t.Error(did.Err)
	}
	if a.live("ConfigMap", namespace+"/settings").GetResourceVersion() != version {
		t.Error("it was written")
	}
}
