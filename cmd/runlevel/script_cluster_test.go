package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// auditPolicy logs every write, and of deletes also the options in their body.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [delete, deletecollection]
- level: Metadata
  verbs: [create, update, patch]
- level: None
`

// shared is the control plane of all scripts that begin with "cluster".
var shared = sandboxtest.New(sandbox.Options{AuditPolicy: auditPolicy})

// patience is the timeout of commands that wait. No wait that succeeds takes as long.
const patience = 5 * time.Minute

// A guest is a script on a control plane. It acts as its own user, whose name marks its
// deletes in the audit log.
type guest struct {
	*cluster.Cluster
	sandbox *sandbox.Sandbox
	user    string
	known   map[string]string // objects by UID: see remember
	printed int               // the number of writes that the command wrote has printed
}

type guestKey struct{}

// clusterCommands are the commands of scripts for the shared control plane. The name of an object is
// KIND[.GROUP] [NAMESPACE/]NAME.
var clusterCommands = map[string]func(*testscript.TestScript, bool, []string){
	"cluster":         enter,
	"apply-as":        applyAs,
	"create":          create,
	"await":           await,
	"await-field":     awaitField,
	"await-gone":      awaitDeleted,
	"await-remains":   awaitRemains,
	"hold":            hold,
	"release":         release,
	"remember":        remember,
	"deleted":         deleted,
	"events":          events,
	"operator":        operator,
	"kill-apply":      killApply,
	"patch":           patch,
	"patch-status":    patchStatus,
	"stop-server":     stopServer,
	"start-server":    startServer,
	"freeze-server":   freezeServer,
	"thaw-server":     thawServer,
	"await-text":      awaitText,
	"scale":           scale,
	"show":            show,
	"stream":          stream,
	"terminal":        terminal,
	"terminal-out":    terminalOut,
	"terminal-answer": terminalAnswer,
	"wrote":           wrote,
	"await-run":       awaitRun,
	"await-record":    awaitRecord,
	"clock":           clock,
	"contexts":        contexts,
	"user":            user,
	"await-dead":      awaitDead,
	"await-condition": awaitCondition,
	"delete":          deleteIt,
	"own-cluster":     ownCluster,
	"thorough":        skipUnlessThorough,
	"registry":        serveRegistry,
}

// enter connects the script to the shared control plane.
func enter(ts *testscript.TestScript, _ bool, _ []string) {
	enterSandbox(ts, shared.Sandbox(ts.Value("t").(testing.TB)))
}

func enterSandbox(ts *testscript.TestScript, s *sandbox.Sandbox) {
	c, err := cluster.Connect(s.Config)
	ts.Check(err)
	g := &guest{c, s, "script-" + ts.Name(), map[string]string{}, 0}
	*ts.Value(guestKey{}).(*guest) = *g
	ts.Setenv("KUBECONFIG", g.kubeconfig(ts, "kubeconfig", ""))
}

// guestOf returns the guest of a script.
func guestOf(ts *testscript.TestScript) *guest { return ts.Value(guestKey{}).(*guest) }

// kubeconfig writes the kubeconfig of the guest; with another server, unless server is "".
func (g *guest) kubeconfig(ts *testscript.TestScript, name, server string) string {
	config, err := clientcmd.LoadFromFile(g.sandbox.Kubeconfig)
	ts.Check(err)
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = g.user, []string{"system:masters"}
	}
	if server != "" {
		for _, cluster := range config.Clusters {
			cluster.Server, cluster.CertificateAuthorityData = server, nil
		}
	}
	path := filepath.Join(ts.Getenv("WORK"), name)
	ts.Check(clientcmd.WriteToFile(*config, path))
	return path
}

// object returns the client of an object's kind and namespace, and the name of the object.
func (g *guest) object(ctx context.Context, ts *testscript.TestScript, kind,
	key string) (dynamic.ResourceInterface, string) {
	g.Refresh() // definitions come and go
	resource, err := g.FindKind(ctx, schema.ParseGroupKind(kind))
	ts.Check(err)
	namespace, name, isNamespaced := strings.Cut(key, "/")
	if !isNamespaced {
		namespace, name = "", key
	}
	return g.In(resource, namespace), name
}

// until waits until isWanted returns true for an object, or for nil if the object does not exist.
func until(ts *testscript.TestScript, args []string,
	wanted func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	place, name := guestOf(ts).object(ctx, ts, args[0], args[1])
	seen, err := objectwatch.Await(ctx, place, name, wanted)
	ts.Check(err)
	return seen
}

// await waits until an object exists: await KIND KEY
func await(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, args, func(o *unstructured.Unstructured) bool { return o != nil })
}

// awaitDeleted waits until objects no longer exist: await-gone KIND KEY [KIND KEY...]
func awaitDeleted(ts *testscript.TestScript, _ bool, args []string) {
	for ; len(args) > 1; args = args[2:] {
		until(ts, args, func(o *unstructured.Unstructured) bool { return o == nil })
	}
}

// awaitRemains waits until a terminating Namespace or definition reports its remaining objects:
// await-remains KIND KEY
func awaitRemains(ts *testscript.TestScript, _ bool, args []string) {
	messages := map[string]bool{
		"NamespaceContentRemaining":    true,
		"NamespaceFinalizersRemaining": true,
		"Terminating":                  true,
	}
	until(ts, args, func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(item any) bool {
			condition, _ := item.(map[string]any)
			kind, _ := condition["type"].(string)
			return messages[kind] && condition["status"] == "True"
		})
	})
}

// create creates an object as another tool would: create FILE [MANAGER]
func create(ts *testscript.TestScript, _ bool, args []string) {
	object := &unstructured.Unstructured{}
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &object.Object))
	resource := guestOf(ts).awaitKind(ts, object.GroupVersionKind().GroupKind())
	_, err := guestOf(ts).In(resource, object.GetNamespace()).Create(context.Background(), object,
		metav1.CreateOptions{FieldManager: managerIn(args, 1)})
	ts.Check(err)
}

// awaitKind finds a kind. Discovery reports a kind a moment after its definition is established.
func (g *guest) awaitKind(ts *testscript.TestScript, kind schema.GroupKind) (found cluster.Resource) {
	ts.Check(wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			g.Refresh()
			found, err = g.FindKind(ctx, kind)
			if errors.Is(err, cluster.ErrNotServed) {
				return false, nil
			}
			return err == nil, err
		}))
	return found
}

// managerIn returns the field manager among the arguments, or that of kubectl edit.
func managerIn(args []string, index int) string {
	if len(args) > index {
		return args[index]
	}
	return "kubectl-edit"
}

// patch changes an object as an administrator would: patch KIND KEY JSON [MANAGER]
func patch(ts *testscript.TestScript, _ bool, args []string) {
	place, name := guestOf(ts).object(context.Background(), ts, args[0], args[1])
	_, err := place.Patch(context.Background(), name, types.MergePatchType, []byte(args[2]),
		metav1.PatchOptions{FieldManager: managerIn(args, 3)})
	ts.Check(err)
}

// hold adds a finalizer to an object: hold KIND KEY
func hold(ts *testscript.TestScript, _ bool, args []string) {
	modify(ts, args, "", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/cleanup"}) })
}

// release removes all finalizers of an object: release KIND KEY
func release(ts *testscript.TestScript, _ bool, args []string) {
	modify(ts, args, "", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
}

// modify changes an object, and retries if others change the object at the same time.
func modify(ts *testscript.TestScript, args []string, subresource string, change func(*unstructured.Unstructured)) {
	for {
		object := until(ts, args, func(o *unstructured.Unstructured) bool { return o != nil })
		change(object)
		place, _ := guestOf(ts).object(context.Background(), ts, args[0], args[1])
		var err error
		if subresource == "" {
			_, err = place.Update(context.Background(), object, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
		} else {
			_, err = place.UpdateStatus(context.Background(), object,
				metav1.UpdateOptions{FieldManager: "kubectl-edit"})
		}
		if !isConflict(err) {
			ts.Check(err)
			return
		}
	}
}

// operator reports an operator as available in a version, as the operator itself would: operator NAME VERSION
func operator(ts *testscript.TestScript, _ bool, args []string) {
	modify(ts, []string{"ClusterOperator.config.openshift.io", args[0]}, "status", func(o *unstructured.Unstructured) {
		var conditions []any
		for kind, status := range map[string]string{"Available": "True", "Progressing": "False", "Degraded": "False"} {
			conditions = append(conditions,
				map[string]any{"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"})
		}
		o.Object["status"] = map[string]any{
			"conditions": conditions,
			"versions":   []any{map[string]any{"name": "operator", "version": args[1]}},
		}
	})
}

// remember records the current UIDs of objects, by which "deleted" and "events" recognize the objects:
// remember KIND KEY [KIND KEY...]
func remember(ts *testscript.TestScript, _ bool, args []string) {
	for ; len(args) > 1; args = args[2:] {
		object := until(ts, args, func(o *unstructured.Unstructured) bool { return o != nil })
		guestOf(ts).known[string(object.GetUID())] = args[0] + " " + args[1]
	}
}

// deleted prints the deletes that the script requested, sorted, from the audit log:
// the object with the UID, if the script remembers it. It omits single deletes of the
// listed kinds, because either the program or, a moment earlier, the cluster deletes them. deleted [KIND...]
func deleted(ts *testscript.TestScript, _ bool, chance []string) {
	g := guestOf(ts)
	var deletes []string
	for _, request := range g.auditedRequests(ts) {
		if !strings.HasPrefix(request.Verb, "delete") {
			continue
		}
		what := fmt.Sprintf("of unknown UID: %+v", request.ObjectRef)
		if only := request.RequestObject.Preconditions; only != nil && only.UID != nil &&
			g.known[string(*only.UID)] != "" {
			what = g.known[string(*only.UID)]
		}
		kind, _, _ := strings.Cut(what, " ")
		if i := slices.Index(chance, kind); i >= 0 {
			chance = slices.Delete(slices.Clone(chance), i, i+1)
			continue
		}
		deletes = append(deletes, request.Verb+" "+what+"\n")
	}
	slices.Sort(deletes)
	fmt.Fprint(ts.Stdout(), strings.Join(deletes, ""))
}

// A request is a request in the audit log.
type request struct {
	Verb, RequestURI string
	ImpersonatedUser struct{ Username string }
	ObjectRef        struct{ Resource, Namespace, Name string }
	RequestObject    metav1.DeleteOptions
}

// isDry reports whether a request is a dry run.
func (r request) isDry() bool { return strings.Contains(r.RequestURI, "dryRun=All") }

// auditedRequests returns the requests of the script in the audit log, without dry runs.
func (g *guest) auditedRequests(ts *testscript.TestScript) []request {
	text, err := os.ReadFile(filepath.Join(g.sandbox.Logs, "audit.log"))
	ts.Check(err)
	var requests []request
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, g.user) {
			continue
		}
		var item request
		ts.Check(json.Unmarshal([]byte(line), &item))
		if item.ImpersonatedUser.Username == g.user && !item.isDry() {
			requests = append(requests, item)
		}
	}
	return requests
}

// wrote prints the writes of the script since the last call from the audit log, or
// "nothing". Requests for access reviews are not writes.
func wrote(ts *testscript.TestScript, _ bool, _ []string) {
	g := guestOf(ts)
	requests := g.auditedRequests(ts)
	text := ""
	for _, request := range requests[g.printed:] {
		if !strings.HasPrefix(request.ObjectRef.Resource, "selfsubject") {
			text += fmt.Sprintln(request.Verb, request.ObjectRef.Resource,
				request.ObjectRef.Namespace+"/"+request.ObjectRef.Name)
		}
	}
	g.printed = len(requests)
	fmt.Fprint(ts.Stdout(), cmp.Or(text, "nothing\n"))
}

// events prints our events about a remembered object: events KIND KEY
func events(ts *testscript.TestScript, _ bool, args []string) {
	g := guestOf(ts)
	for uid, known := range g.known {
		if known != strings.Join(args, " ") {
			continue
		}
		found, err := g.Client.CoreV1().Events("").List(context.Background(), metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.uid": uid, "reportingComponent": cluster.FieldManager}.String(),
		})
		ts.Check(err)
		for _, event := range found.Items {
			fmt.Fprintf(ts.Stdout(), "%s %s: %s\n", event.Type, event.Reason, event.Message)
		}
	}
}
