package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
)

// awaitRun waits until an apply has written its progress to the record of a release, and the progress has a text:
// await-run RELEASE [TEXT]
func awaitRun(ts *testscript.TestScript, _ bool, args []string) {
	key := session.DefaultNamespace + "/runlevel-release-" + args[0]
	until(ts, []string{"ConfigMap", key}, func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		text, _, _ := unstructured.NestedString(o.Object, "data", "record.json")
		_, run, isWritten := strings.Cut(text, `"run": {`)
		return isWritten && (len(args) == 1 || strings.Contains(run, args[1]))
	})
}

// awaitRecord waits until the record of a release has a text: await-record RELEASE REGEXP
func awaitRecord(ts *testscript.TestScript, _ bool, args []string) {
	key, wanted := session.DefaultNamespace+"/runlevel-release-"+args[0], regexp.MustCompile(args[1])
	until(ts, []string{"ConfigMap", key}, func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		text, _, _ := unstructured.NestedString(o.Object, "data", "record.json")
		return wanted.MatchString(text)
	})
}

// These parts of the report of a wait differ from run to run.
var (
	whyAges = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m\d+s|m)\b`)
	times   = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	holders = regexp.MustCompile(`\S+@\S+:\d+-\w{5}`)
)

// clock replaces times and holders in the last output with fixed ones, so that a script can
// compare it.
func clock(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stdout")
	text = times.ReplaceAllString(whyAges.ReplaceAllString(text, "12s"), "2026-01-02T15:04:05Z")
	fmt.Fprint(ts.Stdout(), holders.ReplaceAllString(text, "ana@host:7"))
}

// user makes all later commands act as a user who may only get the listed resources, in every namespace:
// user NAME [RESOURCE[.GROUP]...]
func user(ts *testscript.TestScript, _ bool, args []string) {
	g, ctx := guestOf(ts), context.Background()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
	for _, resource := range args[1:] {
		name, group, _ := strings.Cut(resource, ".")
		role.Rules = append(role.Rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{name}, Verbs: []string{"get", "list"}})
	}
	_, err := g.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	ts.Check(err)
	_, err = g.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: args[0]},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: args[0]},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: args[0]}},
	}, metav1.CreateOptions{})
	ts.Check(err)
	config, err := clientcmd.LoadFromFile(ts.Getenv("KUBECONFIG"))
	ts.Check(err)
	for _, who := range config.AuthInfos {
		who.Impersonate, who.ImpersonateGroups = args[0], []string{"system:authenticated"}
	}
	ts.Check(clientcmd.WriteToFile(*config, ts.Getenv("KUBECONFIG")))
}

// awaitDead waits until the process that applies a release no longer renews its lock:
// await-dead RELEASE
func awaitDead(ts *testscript.TestScript, _ bool, args []string) {
	l := lock.Lock{Client: guestOf(ts).Client, Namespace: session.DefaultNamespace, Release: args[0]}
	deadline := time.After(patience)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		held, err := l.Holder(context.Background())
		ts.Check(err)
		if held != nil && held.IsDead(time.Now()) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("the process that applies release %s is alive", args[0])
		}
	}
}

// awaitCondition waits until an object has a condition: await-condition KIND KEY TYPE STATUS
func awaitCondition(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, args, func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(item any) bool {
			condition, _ := item.(map[string]any)
			return condition["type"] == args[2] && condition["status"] == args[3]
		})
	})
}

// deleteIt deletes an object as another client would: delete KIND KEY
func deleteIt(ts *testscript.TestScript, _ bool, args []string) {
	place, name := guestOf(ts).object(context.Background(), ts, args[0], args[1])
	ts.Check(place.Delete(context.Background(), name, metav1.DeleteOptions{}))
}
